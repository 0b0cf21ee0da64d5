# Random text and networks that have learned nothing: for measuring time, which depends on neither. The
# scripts that measure read this file.
# shellcheck shell=bash disable=SC2034,SC2154
# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/networks.sh"

# random_data FOLDER TOKENS: packs that many tokens of a vocabulary of bytes.
random_data() {
  head -c "$2" /dev/urandom | base64 -w 79 >"$1.txt"
  truncate -s "$2" "$1.txt"
  qltok vocab --quiet --type byte --eos never -o "$1.vocab.json" "$1.txt"
  qltok encode --quiet --vocab "$1.vocab.json" "$1.txt" | qlbin pack --quiet -o "$1"
}

# random_network PRESET DATA FOLDER: a checkpoint of the preset's network.
random_network() {
  rm -rf "$3.run"
  qltrain --quiet -m "$1" --data "$2" --valid "$2" -o "$3.run" --set steps=1 --set eval_interval=2 --set learning_rate=1e-9 "${threads[@]}"
  rm -rf "$3"
  mv "$3.run/last" "$3"
}

# seconds_per_token ARGUMENT...: of an evaluation by qleval with these arguments, the median of three.
# Sets $seconds and $targets_scored.
seconds_per_token() {
  local speeds=() time
  for time in 1 2 3; do
    qleval --quiet --format tsv "${threads[@]}" "$@" >"$scratch/evaluation"
    read -r targets_scored speed < <(awk -F '\t' '
      NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i; next}
      {print $at["targets"], $at["tokens_per_second"]}' "$scratch/evaluation")
    speeds+=("$speed")
  done
  seconds=$(printf '%s\n' "${speeds[@]}" | sort -g | awk 'NR == 2 {print 1 / $1}')
}
