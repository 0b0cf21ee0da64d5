// qleval handles what needs no tensor: --help, --version, completion, errors of the command line.
// For an evaluation qleval replaces itself by the program of the same name in libexec, which
// computes perplexity and takes most of a second to load LibTorch.
#include "base/process.h"
#include "base/tool.h"
#include "installed.h"
#include "tables.h"

int main(int argc, char** argv) {
  return ql::run_tool(qleval_table, argc, argv, [argv](const ql::Options& options) {
    check_qleval(options);
    if (options.has("items")) pipe_items(options, qleval_inputs(options).checkpoints);
    ql::exec_program(libexec_program("qleval"), argv);
  });
}
