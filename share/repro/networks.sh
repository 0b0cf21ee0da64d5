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
