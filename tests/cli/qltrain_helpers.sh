# Shared by the tests of qltrain: small data, a small network, and what to compare.

# make_data: the folders train/ and valid/ of a made-up language, and presets ql.json and xl.json.
make_data() {
  awk 'BEGIN {
    srand(7); state = 1
    for (line = 0; line < 300; line++) {
      text = ""
      for (word = 0; word < 9; word++) {
        state = (state * 5 + int(rand() * 3)) % 37
        text = text " w" state
      }
      print text
    }
  }' >text
  head -n 250 text | sed 's/^ //' >train.txt
  tail -n 50 text | sed 's/^ //' >valid.txt
  qltok vocab --quiet -o words.json train.txt || fail "qltok vocab"
  for part in train valid; do
    qltok encode --quiet --vocab words.json $part.txt | qlbin pack --quiet -o $part || fail "pack"
  done
  local network='"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "segment": 4,
    "memory": 4, "dropout": 0.1, "dropatt": 0.1'
  local training='"batch": 4, "steps": 60, "learning_rate": 0.003, "warmup_steps": 5, "clip": 0.25,
    "eval_interval": 25, "checkpoint_interval": 1, "log_interval": 4'
  echo "{\"format\": \"ql-preset\", \"version\": 1, \"training\": {$training}, \"network\":
    {\"architecture\": \"ql\", \"scales\": [1, 1], \"output_layers\": 1, \"droppath\": 0.3, $network}}" >ql.json
  echo "{\"format\": \"ql-preset\", \"version\": 1, \"training\": {$training}, \"network\":
    {\"architecture\": \"xl\", \"scales\": [3], $network}}" >xl.json
}

# train PRESET RUN OPTION...
train() {
  local preset=$1 run=$2
  shift 2
  qltrain --data train --valid valid -m "$preset" -o "$run" --threads 1 "$@"
}

# start_training PRESET RUN OPTION...: the same in the background; sets $process, output goes to ./said.
# Bash lets programs in the background ignore SIGINT, and nohup may have started this test. So the
# signals of $defaults are not ignored.
start_training() {
  local preset=$1 run=$2
  shift 2
  env --default-signal="${defaults-INT,HUP}" qltrain --data train --valid valid -m "$preset" -o "$run" --threads 1 "$@" 2>said &
  process=$!
}

# steps_of RUN: the number of finished steps in RUN/last, 0 without it.
steps_of() {
  [ -e "$1/last/state.json" ] || { echo 0; return; }
  sed -n 's/^    "step": \([0-9]*\),$/\1/p' "$1/last/state.json" | head -n 1
}

# without_clock LOG: its records without what differs from run to run.
without_clock() {
  sed -E 's/"(elapsed|seconds|tokens_per_second)":[^,}]*//g' "$1"
}

# events_of RUN: the content of its TensorBoard event file, except for values that differ from run to run.
events_of() {
  "$QL_TESTS/cli/read_events.pl" "$1"/events.out.tfevents.*.qltrain | cut -f 2- | grep -v tokens_per_second
}

# expect_same_training A B
expect_same_training() {
  for file in last/model.safetensors last/optimizer.safetensors last/memory.safetensors \
    best/model.safetensors best/optimizer.safetensors best/memory.safetensors; do
    cmp "$1/$file" "$2/$file" || fail "$1 and $2 differ in $file"
  done
  without_clock "$1/log.jsonl" >log1
  without_clock "$2/log.jsonl" >log2
  diff log1 log2 || fail "the logs of $1 and $2 differ"
  events_of "$1" >events1
  events_of "$2" >events2
  diff events1 events2 || fail "the event files of $1 and $2 differ"
}

# wait_for_step RUN STEP PROCESS: until RUN/last has STEP steps or the process is gone.
wait_for_step() {
  while [ "$(steps_of "$1")" -lt "$2" ] && kill -0 "$3" 2>/dev/null; do sleep 0.05; done
}
