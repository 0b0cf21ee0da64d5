# A small corpus and small networks for the tests of complete pipelines; source it after helpers.sh.
# Threads would only compete with the tests that run at the same time.
export OMP_NUM_THREADS=1

# make_text SEED LINES: lines in which each word mostly follows from the one before. Some words have
# letters of two bytes.
make_text() {
  awk -v seed="$1" -v lines="$2" '
    function random(n) { seed = (seed * 16807) % 2147483647; return seed % n }
    BEGIN {
      for (line = 0; line < lines; ++line) {
        word = random(23); text = ""
        for (i = 3 + random(6); i > 0; --i) {
          text = text (text == "" ? "" : " ") (word % 5 == 0 ? "\303\251" : "w") word
          word = random(6) == 0 ? random(23) : (word * 3 + 1) % 23
        }
        print text
      }
    }'
}

# make_data TYPE [OPTION...]: train.txt, valid.txt, test.txt, vocab.json and data/train, data/valid, data/test.
# The test text has words that the vocabulary does not know. The options are those of qltok vocab.
make_data() {
  make_text 11 400 >train.txt
  make_text 12 40 >valid.txt
  { make_text 13 60; echo "novelty w1 and another"; } >test.txt
  qltok vocab -q --type "$@" -o vocab.json train.txt 2>said || { cat said; fail "vocabulary"; }
  rm said
  local part
  for part in train valid test; do
    qltok encode -q --vocab vocab.json $part.txt | qlbin pack -q -o data/$part || fail "$part"
  done
}

# make_preset ARCHITECTURE SCALES OUTPUT_LAYERS SEGMENT MEMORY >FILE
make_preset() {
  cat <<EOF
{"format": "ql-preset", "version": 1, "about": "a test",
 "network": {"architecture": "$1", "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32,
  "scales": [$2], "output_layers": $3, "rate": 2, "pool": "max", "pre_lnorm": true,
  "untie_r": false, "segment": $4, "memory": $5, "dropout": 0.0, "dropatt": 0.0, "droppath": 0.0,
  "init_std": 0.1, "proj_init_std": 0.05},
 "training": {"batch": 4, "steps": 40, "learning_rate": 0.01, "min_lr_ratio": 0.1,
  "warmup_steps": 5, "clip": 0.25, "eval_interval": 20, "checkpoint_interval": 20,
  "log_interval": 20, "seed": 1}}
EOF
}

# train NAME ARCHITECTURE SCALES OUTPUT_LAYERS SEGMENT MEMORY: the checkpoint runs/NAME/best.
train() {
  make_preset "$2" "$3" "$4" "$5" "$6" >"$1.json"
  qltrain -q --data data/train --valid data/valid -m "$1.json" -o "runs/$1" --threads 1 ||
    fail "training $1"
}

# column NAME [ROW] <TABLE: the value of one column of a table with a header line.
column() {
  awk -F '\t' -v name="$1" -v row="${2:-1}" '
    NR == 1 { for (i = 1; i <= NF; ++i) if ($i == name) at = i
              if (!at) { print "no column " name; exit } }
    NR == row + 1 { print $at }'
}

# expect_near A B TOLERANCE WHAT: relative difference.
expect_near() {
  awk -v a="$1" -v b="$2" -v t="$3" '
    BEGIN { d = a - b; if (d < 0) d = -d; if (b < 0) b = -b
            exit !(a ~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ && d <= t * b) }' ||
    fail "$4: '$1' is not near '$2'"
}

# make_comma_locale: sets $comma_locale to env with a locale that has a decimal comma, if one can be made here.
make_comma_locale() {
  comma_locale=(env)
  mkdir -p locales
  if localedef -i de_DE -f UTF-8 "$PWD/locales/de_DE.UTF-8" 2>/dev/null; then
    comma_locale=(env LOCPATH="$PWD/locales" LC_ALL=de_DE.UTF-8)
  else
    leave_out "a locale with a decimal comma cannot be made (locales)"
  fi
}
