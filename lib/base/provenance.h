// Provides the provenance that every vocabulary, stream, manifest and checkpoint states: the tool,
// its command line and its configuration.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace ql {

// Returns the project's version, from CMake.
const char* version();

// Returns {"tool": "qlbin", "version": "0.1.0", "command": "qlbin pack -o ...", "configuration":
// {...}}. It has no time and no host name, so the same command on the same input gives the same
// bytes. Tool and command are "" in a program that does not use run_tool.
//
// The object stays below half a megabyte, because headers of token streams and the lineage of data
// (shard/manifest.h) have room for little more. A text that takes more than 16 KiB as JSON keeps
// 1 KiB at each end, with "... N bytes more ..." in between.
Json provenance(const Json& configuration);

// Returns the name of this program, or "PROGRAM" in one that does not use run_tool.
std::string invoked_tool();

// Only run_tool calls this, with the arguments of the command line.
void set_provenance(const std::string& tool, const std::vector<std::string>& arguments);

// Quotes words for the shell and joins them with spaces. If the text takes more than 16 KiB, long
// runs of names ("-" and words that do not begin with '-') are shortened. A run of more than ten
// names keeps the first eight, "... N more ..." and the last.
std::string shortened_words(const std::vector<std::string>& words);

}  // namespace ql
