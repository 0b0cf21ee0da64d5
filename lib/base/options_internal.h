// Shared by the sources of base/options.h and base/tool.cpp only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.h"

namespace ql::internal {

// --help, --version, --quiet and --verbose: every command has them.
const std::vector<Option>& common_options();

// The command's own options followed by the common ones.
std::vector<const Option*> all_options(const Command& command);

// True when the tool's first argument can pick a command.
bool has_named_commands(const ToolTable& tool);

// The command that needs no name, or null: of a tool that has no other, or beside named ones.
const Command* default_command(const ToolTable& tool);

// "qlbin pack", or "qltrain" for a tool without named commands.
std::string full_name(const ToolTable& tool, const Command& command);

// Returns what stands behind the option's name in help: "DIR", or "" for a flag.
std::string option_value(const Option& option);

// Returns the option's help and what the table says of it beside, a sentence or more each.
std::vector<std::string> option_sentences(const Option& option);

// A pattern like "[FILE...|-]" or "MANIFEST..." allows so many file names.
struct PositionalRange {
  std::size_t minimum = 0;
  std::size_t maximum = 0;
};
PositionalRange positional_range(const Command& command);

// Returns what is wrong with one value typed for `option` ("expected a whole ..."), or "".
std::string value_problem(const Option& option, const std::string& value);

// Composes UsageErrors about one command, or about the tool when `command` is null: they name the
// command and end with a suggestion or the help to look at.
class Complaint {
 public:
  Complaint(const ToolTable& tool, const Command* command);
  [[noreturn]] void raise(const std::string& what, const std::string& suggestion = "") const;

 private:
  std::string where_, see_;
};

// The option nearest to a mistyped "--name", with its dashes; "" when none is near.
std::string nearest_option(const std::string& typed, const std::vector<const Option*>& options);

// A command line in its parts, not checked yet: every use of an option in order ("true" for a
// flag), and the arguments that belong to no option.
struct SplitLine {
  std::vector<std::pair<const Option*, std::string>> uses;
  std::vector<std::string> positional;
};
SplitLine split_line(const std::vector<std::string>& arguments,
                     const std::vector<const Option*>& options, const Complaint& complaint);

// "say hello" -> "Say hello.": a summary as a sentence of its own.
std::string sentence(std::string text);

// Breaks `text` at blanks so that no line is wider than `width` (longer words stay whole).
std::vector<std::string> wrap(std::string_view text, std::size_t width);

}  // namespace ql::internal
