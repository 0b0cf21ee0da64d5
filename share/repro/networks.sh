# A network on the command line of a script: CHECKPOINT, or with other lengths than those of training
# CHECKPOINT=SEGMENT/MEMORY or CHECKPOINT=SEGMENT/MEMORY/COMPRESSED.
# shellcheck shell=bash disable=SC2034

wrong() {
  echo "$(basename "$0"): error: $* (see $(basename "$0") --help)" >&2
  exit 2
}

# read_network NETWORK: sets $checkpoint, and $lengths to options of qleval.
read_network() {
  local segment memory compressed
  checkpoint=${1%%=*} lengths=()
  if [[ $1 == *=* ]]; then
    IFS=/ read -r segment memory compressed <<<"${1#*=}"
    lengths=(--segment "$segment" --memory "$memory" ${compressed:+--compressed-memory "$compressed"})
  fi
}
