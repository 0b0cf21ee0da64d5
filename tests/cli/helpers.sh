# Helpers for CLI tests, sourced by tests/cli/run.

# run COMMAND...: prints the command's output and then its exit code.
run() {
  echo "\$ $*"
  "$@" 2>&1
  echo "[exit $?]"
}

# programs: the names of all programs that were built.
programs() {
  local path
  for path in "$QL_BIN"/ql*; do
    [[ ${path##*/} =~ ^ql[a-z]+$ ]] && echo "${path##*/}"
  done
  return 0
}

# fail MESSAGE: ends the test.
fail() {
  echo "FAILED: $*"
  exit 1
}

# can_make_terminal: whether script(1) is installed and finds a device for a terminal.
can_make_terminal() { script -qec true /dev/null </dev/null >/dev/null 2>&1; }

# skip MESSAGE: the test cannot run here.
skip() {
  echo "skipped: $*"
  exit 77
}

# leave_out MESSAGE: a part of the test cannot run here. The line does not belong to the output that is compared.
leave_out() { echo "left out: $*" >>"$QL_LEFT_OUT"; }

# expect_exit CODE COMMAND...: fails unless the command ends with that code; its output goes to ./said.
expect_exit() {
  local want=$1 got
  shift
  "$@" >said 2>&1
  got=$?
  [ "$got" -eq "$want" ] || { cat said; fail "expected exit $want, got $got: $*"; }
}

# expect_said TEXT: the last expect_exit printed this text.
expect_said() {
  grep -qF -- "$1" said || { cat said; fail "expected to read: $1"; }
}

# expect_equal A B [WHAT]
expect_equal() {
  [ "$1" = "$2" ] || fail "${3:-values} differ: '$1' and '$2'"
}

# await WHAT COMMAND...: until the command succeeds, for two minutes at most.
await() {
  local what=$1 tries
  shift
  for ((tries = 0; tries < 2400; tries++)); do
    "$@" && return
    sleep 0.05
  done
  fail "$what has not come"
}

# catches_sigterm PROCESS: succeeds when the process has come so far that it handles signals itself.
# qemu does from its own start, and nothing shows how far the program that it runs has come.
catches_sigterm() {
  local caught
  caught=$(sed -n 's/^SigCgt:\t//p' "/proc/$1/status" 2>/dev/null)
  [ $((16#${caught:-0} & 0x4000)) -ne 0 ] || return 1
  case $(readlink "/proc/$1/exe") in *qemu*) sleep 5 ;; esac
}

# free_port: a port below those that the kernel gives to connections, which may take one of theirs before it is used.
free_port() {
  perl -MIO::Socket::INET -e '
    my $end = 32768;
    if (open my $range, "<", "/proc/sys/net/ipv4/ip_local_port_range") { ($end) = split " ", <$range> }
    my $socket;
    for (1 .. 100) {
      last if $end < 21000;
      last if $socket = IO::Socket::INET->new(Listen => 1, LocalPort => 20000 + int rand $end - 20000);
    }
    print +($socket // IO::Socket::INET->new(Listen => 1))->sockport'
}

# start_ranks COUNT COMMAND...: starts it in the background as this many processes that share the work, with
# the variables that torchrun sets. Their numbers are in $ranks.
start_ranks() {
  local count=$1 rank port
  port=$(free_port) || fail "no free port"
  shift
  ranks=()
  for ((rank = 0; rank < count; rank++)); do
    RANK=$rank WORLD_SIZE=$count LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 \
      MASTER_PORT=$port "$@" &
    ranks+=($!)
  done
}

# ranks COUNT COMMAND...: does the same and waits for them; fails with the code of the first that does.
ranks() {
  local code=0 process
  start_ranks "$@"
  for process in "${ranks[@]}"; do
    wait "$process" || code=$((code == 0 ? $? : code))
  done
  return "$code"
}
