// Shared by the sources of base/options.h and base/tool.cpp only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace ql::internal {

// --help, --version, --quiet and --verbose: every command has them.
const std::vector<Option>& common_options();

// The command's own options followed by the common ones.
std::vector<const Option*> all_options(const Command& command);

// True when the tool's first argument picks a command.
bool has_named_commands(const ToolTable& tool);

// "qlbin pack", or "qltrain" for a tool without named commands.
std::string full_name(const ToolTable& tool, const Command& command);

// "-o, --output DIR" as the parts "-o, " and "--output DIR".
std::string option_value(const Option& option);  // "DIR", "" for a flag

// How many file names a pattern like "[FILE...|-]" or "MANIFEST..." allows.
struct PositionalRange {
  std::size_t minimum = 0;
  std::size_t maximum = 0;
};
PositionalRange positional_range(const Command& command);

// What is wrong with one value typed for `option` ("expected a whole number ..."), or "".
std::string value_problem(const Option& option, const std::string& value);

// Breaks `text` at blanks so that no line is wider than `width` (longer words stay whole).
std::vector<std::string> wrap(std::string_view text, std::size_t width);

}  // namespace ql::internal
