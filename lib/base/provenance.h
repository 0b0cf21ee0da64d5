// Every vocabulary, stream, manifest and checkpoint tells where it came from.
#pragma once

#include <string>

#include "base/json.h"

namespace ql {

// {"tool": "qlbin", "version": "0.1.0", "command": "qlbin pack -o ...", "configuration": {...}}.
// No clock and no host name: the same command on the same input gives the same bytes. Tool and
// command are "" in a program that does not use run_tool.
Json provenance(const Json& configuration);

// The name of this program, "" in one that does not use run_tool.
const std::string& invoked_tool();

// `command` is as typed, shell-quoted. Only run_tool calls this.
void set_provenance(const std::string& tool, const std::string& command);

}  // namespace ql
