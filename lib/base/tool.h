// Every binary's main() shares this: signals, --help and --version, errors to text and exit code.
#pragma once

#include <functional>
#include <string>

#include "base/options.h"

namespace ql {

// The project's version, from CMake.
const char* version();

// Parses the command line, answers --help, --version and the hidden --man-options and
// --bash-completion on stdout, and calls `body` with the rest. Returns the exit code; every
// exception ends here as one line "TOOL: error: ..." on stderr:
//   UsageError 2, Error and std::exception 1, std::bad_alloc 1 with advice,
//   Interrupted 128 + signal; BrokenPipe 128 + SIGPIPE and AlreadyReported without a word.
// Afterwards stdout is flushed and checked: a full disk behind `> file` is an error, too.
// The table is made here, because there may be no memory for it.
int run_tool(const std::function<ToolTable()>& make_table, int argc, char** argv,
             const std::function<void(const Options&)>& body);

// All that a command writes to standard output. Throws when not everything arrived.
void print(const std::string& text);

}  // namespace ql
