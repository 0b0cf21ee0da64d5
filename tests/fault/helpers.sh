# Helpers of the fault suite, sourced by its tests. faults.cpp defines a FAULT. QL_FAULT_ALL=1
# tries hundreds of places where a training can fail instead of some; that takes many minutes.
[ -e "$QL_BIN/ql_faults.so" ] || skip "the library of faults was not built"
# The name that file descriptors lead to.
here=$(pwd -P)

# Only files in this folder are concerned.
fault_folder=$here/place

# with_fault FAULT COMMAND...: ./fired exists afterwards if a call failed.
with_fault() {
  local fault=$1
  shift
  rm -f fired
  QL_FAULT=$fault QL_FAULT_FOLDER=$fault_folder QL_FAULT_FIRED=$here/fired \
    LD_PRELOAD=$QL_BIN/ql_faults.so "$@"
}

# reason HOW: in words.
reason() {
  case $1 in
    ENOSPC) echo "no space left on device" ;;
    EIO) echo "input/output error" ;;
    EACCES) echo "permission denied" ;;
    EROFS) echo "read-only file system" ;;
    ENOENT) echo "no such file or directory" ;;
    ENOMEM) echo "cannot allocate memory" ;;
    EMFILE) echo "too many open files" ;;
    *) fail "reason $1" ;;
  esac
}

# expect_failure TOOL CODE TEXT: exit 1 and one message, in ./said, that has the text.
expect_failure() {
  [ "$2" -eq 1 ] || { cat said; fail "$fault: exit $2, expected 1"; }
  [ "$(grep -c "^$1: error: " said)" -eq 1 ] || { cat said; fail "$fault: expected one message"; }
  grep "^$1: error: " said | grep -qF -- "$3" || { cat said; fail "$fault: expected to read: $3"; }
}

# each_fault "CALL..." "HOW..." [+]: calls `attempt` with $fault set and then `examine CODE HOW`, for
# the first call that fails, the second and so on until there is none left; "+": all later calls fail,
# too. `prepare` makes place/ anew every time.
each_fault() {
  local call how number code
  for call in $1; do
    for how in $2; do
      for ((number = 1; ; ++number)); do
        fault=$call:$number${3-}:$how
        rm -rf place
        mkdir place
        prepare
        attempt >said 2>&1
        code=$?
        [ -e fired ] || break
        examine $code "$how"
        [ $number -lt 2000 ] || fail "$fault: there is no end to it"
      done
      [ $code -eq 0 ] || { cat said; fail "$fault: exit $code without a fault"; }
      [ $number -gt 1 ] || fail "$call:$how: nothing has failed, this test is blind"
    done
  done
}
