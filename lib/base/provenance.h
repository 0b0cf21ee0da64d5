// Every vocabulary, stream, manifest and checkpoint states where it came from.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace ql {

// {"tool": "qlbin", "version": "0.1.0", "command": "qlbin pack -o ...", "configuration": {...}}.
// No clock and no host name: the same command on the same input gives the same bytes. Tool and
// command are "" in a program that does not use run_tool.
//
// It stays below half a megabyte, because streams and histories have room for little more: of a
// text that takes more than 16 KiB as JSON, 1 KiB stays at each end, with "... N bytes more ..."
// between.
Json provenance(const Json& configuration);

// The name of this program, "" in one that does not use run_tool.
const std::string& invoked_tool();

// The `arguments` are those of the command line. Only run_tool calls this.
void set_provenance(const std::string& tool, const std::vector<std::string>& arguments);

// Quotes words for the shell and joins them by blanks. Where that takes more than 16 KiB, names
// (words that do not begin with '-') that follow each other are shortened to the first eight,
// "... N more ..." and the last. An option's value is the first of such words, and stays.
std::string shortened_words(const std::vector<std::string>& words);

}  // namespace ql
