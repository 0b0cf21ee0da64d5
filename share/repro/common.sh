# The common functions of the scripts of this folder; they read this file.
#
# Results are kept and not made again: data, a training that ended well, a perplexity. A training that was
# interrupted goes on from its last checkpoint. So a script that was stopped, for whatever reason, is simply
# called again.
# shellcheck shell=bash disable=SC2034,SC2154
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/networks.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ql=$here/../ql
[ -d "$ql/presets" ] || ql=$(dirname "$here") # as installed
program=$(basename "$0")
# Options of single scripts, which $own_options names. A script sets the keys of $own_keys itself, and needs
# the presets of $networks.
widths='' first='' type=word tests=''
own_keys=${own_keys-}

# The first lines of a script are its help, and then comes this.
usage() {
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  cat <<'END'
Options:
  --data FOLDER      a corpus: train.txt, valid.txt and test.txt, words between blanks, a paragraph a
                     line; default: the novels of the demo
  --budget BUDGET    of each training: minutes or hours (2m, 10h), or tokens (500k, 20M); default: the
                     steps of the preset
  --output FOLDER    where everything goes, in a folder named after the corpus; default: ./repro. Another
                     corpus of the same name needs another folder, and so does a network of the same name
                     with other settings, --device or --precision
  --presets NAME     simplebooks-2, simplebooks-92 or wikitext-103: the networks of the paper's
                     experiments on that corpus; each script has its own default
  --seeds N,...      train each network with each seed; default: 1
  --set KEY=VALUE    another value for all trainings, as qltrain takes it; may be given several times
  --device, --precision
                     as qltrain takes them
  --threads N        of qltrain and qleval; default: all cores. Scripts that run at the same time
                     should divide the cores
  --bin FOLDER       where the tools are; default: found in PATH
END
}

fail() {
  echo "$program: error: $*" >&2
  exit 1
}

output=repro corpus='' budget='' minutes='' tokens='' seeds=1 settings=() device=()
# The runs of these networks, this budget and these settings; others have other folders.
runs=''
read_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --data | --budget | --output | --presets | --seeds | --set | --device | --precision | --threads | --bin) ;;
      --widths | --part | --type | --test) [[ " $own_options " == *" $1 "* ]] || wrong "unknown argument $1" ;;
      *) wrong "unknown argument $1" ;;
    esac
    [ $# -ge 2 ] || wrong "$1 needs a value"
    case $1 in
      --data) corpus=$(realpath -e -- "$2") || exit 1 ;;
      --budget) budget=$2 ;;
      --output) output=$2 ;;
      --presets) presets=$2 ;;
      --seeds)
        [[ $2 =~ ^[0-9]+(,[0-9]+)*$ ]] || wrong "--seeds $2: expected whole numbers, such as 1,2,3"
        seeds=${2//,/ }
        [ -z "$(tr , '\n' <<<"$2" | sort | uniq -d)" ] || wrong "--seeds $2: a seed is given twice" ;;
      --widths)
        [[ $2 =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || wrong "--widths $2: expected whole numbers, such as 128,256"
        widths=${2//,/ } ;;
      --part) first=$2 ;;
      --type) type=$2 ;;
      --test) tests=$2 ;;
      --set)
        [[ $2 != seed=* ]] || wrong "--set $2: expected another key; give --seeds ${2#seed=}"
        [[ " $own_keys " != *" ${2%%=*} "* ]] || wrong "--set $2: expected another key; this script sets ${2%%=*} itself"
        settings+=("$2") ;;
      --device | --precision) device+=("$1" "$2") ;;
      --threads) threads=(--threads "$2") ;;
      --bin) PATH=$(cd -- "$2" && pwd):$PATH ;;
    esac
    shift 2
  done
  local number='[0-9]+(\.[0-9]+)?'
  if [[ $budget =~ ^${number}[mh]$ ]]; then
    minutes=$(awk -v budget="$budget" 'BEGIN {print budget * (budget ~ /h$/ ? 60 : 1)}')
  elif [[ $budget =~ ^${number}[kM]?$ ]]; then
    tokens=$(awk -v budget="$budget" \
      'BEGIN {printf "%.0f", budget * (budget ~ /M$/ ? 1e6 : budget ~ /k$/ ? 1e3 : 1)}')
  elif [ -n "$budget" ]; then
    wrong "--budget $budget: expected minutes or hours (2m, 10h), or tokens (500k, 20M)"
  fi
  # qltrain takes minutes=0 for no limit.
  [ "$minutes$tokens" != 0 ] || wrong "--budget $budget: expected more than 0"
  programs qltok qlbin qltrain qleval qlctx
  perl -MJSON::PP -e 1 2>/dev/null || fail "perl with its modules is not in PATH; install it, on Debian: apt-get install perl"
  local network
  for network in $networks; do
    [ -e "$ql/presets/$presets-$network.json" ] ||
      fail "--presets $presets: there is no $ql/presets/$presets-$network.json"
  done
  runs=runs/$presets${budget:+,$budget}$(printf ',%s' "${settings[@]}")
  runs=${runs%,}
}

# say TEXT: what happens next, with the time since the start.
say() { printf '[%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*" >&2; }

# prepare: changes to the folder of the corpus, makes the shards and sets $data, those of the training.
prepare() {
  output=$output/$(basename "${corpus:-novels}")
  [ "$type" = word ] || output+=-$type
  mkdir -p -- "$output"
  cd -- "$output"
  # If scripts run at the same time, one of them makes the shards.
  local preparing
  { exec {preparing}>>.lock; } 2>/dev/null || exec {preparing}<. # finished results may be read-only
  flock "$preparing"
  if [ -z "$corpus" ]; then
    corpus=$PWD
    [ -e test.txt ] || { say "the novels" && "$ql/demo/novels" . >&2; }
  fi
  local part rare=3
  for part in train valid test; do
    [ -r "$corpus/$part.txt" ] || fail "$corpus/$part.txt: cannot be read; a corpus needs train.txt, valid.txt and test.txt"
  done
  local texts
  texts=$(cd "$corpus" && sha256sum train.txt valid.txt test.txt)
  [ -s texts.sha256 ] || { echo "$texts" >texts.sha256.$$ && mv texts.sha256.$$ texts.sha256; }
  [ "$texts" = "$(cat texts.sha256)" ] ||
    fail "$PWD has the results of other texts than those of $corpus; give another --output, or remove that folder"
  if [ ! -e vocab.json ]; then
    # A corpus with <unk> has been rid of its rare words.
    if grep -qm 1 -w '<unk>' "$corpus/train.txt"; then rare=1; fi
    if [ "$type" = byte ]; then rare=''; fi
    say "the vocabulary"
    qltok vocab --quiet --type "$type" ${rare:+--min-count $rare} -o vocab.json "$corpus/train.txt"
  fi
  for part in train valid test; do
    if [ ! -e data/$part/manifest.json ]; then
      say "the tokens of $part.txt"
      qltok encode --quiet --vocab vocab.json "$corpus/$part.txt" | qlbin pack --quiet -o data/$part
    fi
  done
  data=data/train
  if [ -n "$first" ]; then
    data=data/train-$first runs=$runs,part=$first
    [ -e "$data/manifest.json" ] || qlbin cat --quiet --range "0:$first" data/train | qlbin pack --quiet -o "$data"
  fi
  exec {preparing}>&-
}

# value KEY PRESET [KEY=VALUE...]: the last value given, or else the preset's. A whole number is printed without
# a unit.
value() {
  perl -MJSON::PP -e '
    my ($key, $file, @set) = @ARGV;
    open my $in, "<", $file or die "$file: $!\n";
    local $/;
    my $preset = decode_json(<$in>);
    my $value = $preset->{network}{$key} // $preset->{training}{$key} // 0;
    for (@set) {$value = $1 if /^\Q$key\E=(.*)/}
    my %unit = (k => 1e3, M => 1e6, G => 1e9, T => 1e12, Ki => 2**10, Mi => 2**20, Gi => 2**30, Ti => 2**40);
    $value = $1 * ($2 ? $unit{$2} : 1) if $value =~ /^0*(\d+)([kMGT]i?|Ki)?$/ && (!$2 || $unit{$2});
    print "$value\n"' "$@"
}

# train NAME PRESET [KEY=VALUE...]: one training with the budget, into $runs/NAME.
train() {
  local run=$runs/$1 preset=$ql/presets/$2.json set=("${@:3}" "${settings[@]}") arguments=() setting made_of found
  local training batch segment
  # Another script may train the same network: then this one waits. (qltrain has a lock of its own.)
  mkdir -p "$run"
  { exec {training}>>"$run/.script-lock"; } 2>/dev/null || exec {training}<"$run"
  flock --nonblock "$training" || { say "waiting for the script that trains $run" && flock "$training"; }
  made_of="preset $2, ${set[*]} ${device[*]}, data"
  made_of+=$(sed -n 's/.*"data_hash": *"\(.*\)".*/ \1/p' "$data/manifest.json")
  found=$made_of
  # A call that qltrain refused has trained nothing.
  if [ -e "$run/made-of" ] && [ -e "$run/log.jsonl" ]; then found=$(cat "$run/made-of"); fi
  [ "$found" = "$made_of" ] ||
    fail "$output/$run: expected '$made_of', found '$found'; give another --output, or remove this folder"
  if [ -e "$run/finished" ]; then
    exec {training}>&-
    return 0
  fi
  if [ -n "$tokens" ]; then
    batch=$(value batch "$preset" "${set[@]}")
    segment=$(value segment "$preset" "${set[@]}")
    [[ $batch =~ ^[1-9][0-9]*$ && $segment =~ ^[1-9][0-9]*$ ]] ||
      fail "batch=$batch and segment=$segment: expected whole numbers above 0"
    set+=("steps=$((tokens / (batch * segment) + 1))")
  elif [ -n "$minutes" ]; then
    set+=("minutes=$minutes")
  fi
  for setting in "${set[@]}"; do arguments+=(--set "$setting"); done
  say "training $run"
  # The file is never empty: the training could not be continued then.
  echo "$made_of" >"$run/made-of.$$"
  mv "$run/made-of.$$" "$run/made-of"
  qltrain --quiet --data "$data" --valid data/valid -m "$preset" -o "$run" --resume \
    --set checkpoint_minutes=2 "${arguments[@]}" "${device[@]}" "${threads[@]}" >&2
  touch "$run/finished"
  exec {training}>&-
}

# column NAME: the value in the second line of a table with a header line.
column() {
  awk -F '\t' -v name="$1" '
    NR == 1 {for (i = 1; i <= NF; i++) if ($i == name) column = i}
    NR == 2 {print $column}'
}

# score NAME SEGMENT MEMORY COMPRESSED: scores the test text, and sets $table to the file with the line of
# qleval. A length - is left out.
score() {
  table=$runs/$1/test-$2-$3-$4.tsv
  # Other scripts may score the same network at the same time.
  local new=$table.$$
  if [ ! -e "$table" ]; then
    say "scoring $runs/$1 with $2/$3/$4"
    read_network "$runs/$1/best=$2/${3#-}/${4#-}"
    qleval --quiet -m "$checkpoint" --data data/test "${lengths[@]}" "${device[@]}" "${threads[@]}" >"$new"
    # Means of an infinite perplexity are of no use, and awk reads it as 0.
    [[ $(column perplexity <"$new") =~ ^[0-9] ]] ||
      fail "$runs/$1: the perplexity of the test text is $(column perplexity <"$new"), as $output/$new has it: the training has diverged"
    mv "$new" "$table"
  fi
}

# score_all NAME SEGMENT MEMORY COMPRESSED: scores the networks of all seeds. Sets $mean of their
# perplexities, $spread, the distance from the lowest to the highest one (- for a single seed), $with_spread,
# the mean and in brackets the spread, and $context, the average context length n_c as the paper has it. (No
# function prints these: its failure would be lost.)
score_all() {
  local seed perplexities=()
  for seed in $seeds; do
    score "$1-seed-$seed" "${@:2}"
    perplexities+=("$(column perplexity <"$table")")
  done
  context=$(column context <"$table")
  read -r mean spread < <(printf '%s\n' "${perplexities[@]}" | awk '
    {sum += $1; if (NR == 1 || $1 < low) low = $1; if ($1 > high) high = $1}
    END {printf "%.2f %s\n", sum / NR, (NR > 1 ? sprintf("%.2f", high - low) : "-")}')
  with_spread=$mean
  [ "$spread" = - ] || with_spread+=" ($spread)"
}

# paper TABLE PRESETS NETWORK LENGTHS: the paper's own perplexity, or - where it has none.
paper() {
  awk -F '\t' -v key="$1/$2/$3/$4" '$1 "/" $2 "/" $3 "/" $4 == key {found = $5} END {print found ? found : "-"}' \
    "$here/paper.tsv"
}

# label SEGMENT MEMORY [COMPRESSED]: the lengths as the paper prints them: 04/12/-
label() {
  local length
  for length in "$@"; do
    if [ "$length" = - ]; then printf '/-'; else printf '/%02d' $((10#${length:-0})); fi
  done | cut -c 2-
}

# gain QL XL: the first perplexity subtracted from the second one, and the same in percent of the second.
gain() { awk -v ql="$1" -v xl="$2" 'BEGIN {printf "%+.2f %+.2f%%\n", xl - ql, (xl - ql) / xl * 100}'; }

# The names that the paper gives the networks.
declare -A title=([ql]=Transformer-QL [xl]=Transformer-XL [compressive]=Comp-Transformer
  [multiscale]=MS-Transformer)
