// qltrain handles what needs no tensor: --help, --version, completion, errors of the command line.
// For training qltrain replaces itself by the program of the same name in libexec, which trains a
// network and takes most of a second to load LibTorch.
#include "base/process.h"
#include "base/tool.h"
#include "installed.h"
#include "tables.h"

int main(int argc, char** argv) {
  return ql::run_tool(qltrain_table, argc, argv, [argv](const ql::Options& options) {
    check_qltrain(options);
    ql::exec_program(libexec_program("qltrain"), argv);
  });
}
