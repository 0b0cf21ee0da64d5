// Has the parts of main() that all programs share (signals, --help and --version, errors as text
// and as exit code), and the options that several tools have.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/file_kind.h"
#include "base/json.h"
#include "base/options.h"
#include "base/rows.h"

namespace ql {

// These make the options that several tools have, with the same help everywhere, and read their
// values.

// Makes the option --threads. `remark` is appended to its help text.
Option threads_option(const std::string& remark);
// Returns the number of threads that --threads asks for. For 0 this is usable_cores() of
// base/resources.h.
int threads_of(const Options& options);

// Makes -o, --output-file for commands that otherwise write data to standard output. Its default
// "-" is standard output, as for OutputStream of base/stream.h. `remark` ends the description.
Option output_file_option(const std::string& remark = "");

// Makes --files-from, which reads the names from a file, for commands that take many names.
Option files_from_option();
// Returns the names on the command line, or those in the list of --files-from. The list has one
// name per line or, if it contains a NUL, a name before each NUL. Throws UsageError for names and a
// list together, and Error for a list without names or with the name of a missing file. Call it
// once: the list may be standard input.
std::vector<std::string> input_names(const Options& options);

// Throws UsageError if the file `output` of `option`, unless it is "-", exists and is one of the
// files `inputs` ("-" is standard input): it would replace what is read. Inputs that do not exist
// are ignored.
void refuse_to_replace(const std::string& output, const std::vector<std::string>& inputs,
                       const std::string& option = "-o");

// columns_option() makes --columns. table_of() makes the table on standard output that --columns
// asks for; the completion offers `names`. On a terminal, without --columns, the columns `first`
// come before the others. The tool must have an option --format. If its value is not "tsv",
// --columns causes a UsageError.
Option columns_option(std::function<std::vector<std::string>()> names);
TableText table_of(const Options& options, std::vector<std::string> first);

// raw_option() makes --raw. content_of() returns the content that a command accepts: anything with
// --raw, otherwise `expected`.
Option raw_option();
Content content_of(const Options& options, Content expected);

// Makes --threads, --timeout (of several processes, in seconds), --device and --precision for the
// tools that compute with tensors. `sharing` completes the sentence "torchrun, mpirun or srun
// starts processes that ...".
std::vector<Option> machine_options(const std::string& sharing, const Option& precision);

// Returns the values of the options, for provenance() of base/provenance.h. --threads and
// --output-file are left out, because they change only the speed and the output's name. `names` is
// the result of input_names(). With --files-from, shortened_words(names) is added, because the
// command line lacks the names.
Json configuration_of(const Options& options);
Json configuration_of(const Options& options, const std::vector<std::string>& names);

// Parses the command line, answers --help, --version and the hidden --man-options and
// --bash-completion on stdout, and otherwise calls `body`. Returns the exit code. An exception ends
// here as a message "TOOL: error: ..." on stderr, and gives the exit code:
//   UsageError: 2
//   Error, std::exception: 1
//   std::bad_alloc: 1, with advice in the message
//   Interrupted: 128 + signal, with a note in place of an error
//   BrokenPipe: 128 + SIGPIPE, without a message
//   AlreadyReported: the exit code that it holds, without a message
// After `body` stdout is flushed and checked, so that a full disk after `> file` is an error, too.
// make_table() is called here, so that a lack of memory is reported like other errors.
int run_tool(const std::function<ToolTable()>& make_table, int argc, char** argv,
             const std::function<void(const Options&)>& body);

// Writes `text` to standard output. Throws when not everything arrived.
void print(const std::string& text);

}  // namespace ql
