# The functions that all scripts of this folder use; they read this file.
# shellcheck shell=bash disable=SC2034

# Other locales have a decimal comma, with which printf and awk misread the tools' numbers.
export LC_ALL=C
# With CDPATH, cd prints the folder, and may take another one.
unset CDPATH

# The option --threads of a script, for qltrain and qleval.
threads=()

wrong() {
  echo "$(basename "$0"): error: $* (see $(basename "$0") --help)" >&2
  exit 2
}

# whole_number OPTION VALUE LEAST: refuses a value that is not a whole number of at least LEAST.
whole_number() {
  [[ $2 =~ ^(0|[1-9][0-9]{0,17})$ && $2 -ge $3 ]] || wrong "$1 $2: expected a whole number, at least $3"
}

# programs NAME...: refuses a call without these programs in PATH.
programs() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null && continue
    echo "$(basename "$0"): error: $program is not in PATH; give --bin FOLDER" >&2
    exit 1
  done
}

# read_network NETWORK: sets $checkpoint, and $lengths to options of qleval. A network is CHECKPOINT, or
# with other lengths than those of training CHECKPOINT=SEGMENT/MEMORY/COMPRESSED, from the end of which
# lengths may be missing.
read_network() {
  local segment memory compressed
  checkpoint=$1 lengths=()
  # A folder may have a name such as seed=1.
  if [ ! -d "$1" ] && [[ $1 =~ =[0-9/]+$ ]]; then
    checkpoint=${1%=*}
    IFS=/ read -r segment memory compressed <<<"${1##*=}"
    lengths=(--segment "$segment" ${memory:+--memory "$memory"}
      ${compressed:+--compressed-memory "$compressed"})
  fi
}
