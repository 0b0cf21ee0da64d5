// Options that several tools have, in the same words everywhere, and what the tools make of them.
#pragma once

#include <string>
#include <vector>

#include "base/file_kind.h"
#include "base/json.h"
#include "base/options.h"
#include "base/rows.h"

namespace ql {

// --threads. `remark` follows its help.
Option threads_option(const std::string& remark);
// Returns the number that --threads asks for: 0 is one for each core that usable_cores() of
// base/resources.h finds.
int threads_of(const Options& options);

// -o, --output-file of commands that otherwise write data to standard output. Its default "-"
// stands for that, as DataOutput of base/data_output.h takes it.
Option output_file_option();

// --files-from of commands that take many names: the names are in a file instead.
Option files_from_option();
// Returns the names of the command line, or those of --files-from: one a line, or each ended by NUL
// when the list has one. Throws UsageError when there are both, and Error for a list without names
// and for names that lead to nothing. Call it once: the list may be standard input.
std::vector<std::string> input_names(const Options& options);

// --columns of a table, and the table that it asks for on standard output; on a terminal the
// columns `first` come before the others. Throws UsageError for --columns without a table.
Option columns_option();
TableText table_of(const Options& options, std::vector<std::string> first);

// --raw, and the content that a command reads: `expected`, or anything with --raw.
Option raw_option();
Content content_of(const Options& options, Content expected);

// --threads, --timeout (of several processes, in seconds), --device and --precision of
// the tools that compute with tensors. `sharing` says what the processes do.
std::vector<Option> machine_options(const std::string& sharing, const Option& precision);

// The configuration that an artefact of the command names in its provenance. What changes its speed
// or its name only is left out. `names` are those of input_names(): provenance names them,
// shortened, where the command line does not.
Json configuration_of(const Options& options);
Json configuration_of(const Options& options, const std::vector<std::string>& names);

}  // namespace ql
