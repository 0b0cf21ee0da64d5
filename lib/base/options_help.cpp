// --help, readable at 80 columns.
#include <fmt/format.h>

#include "base/options.h"
#include "base/options_internal.h"

namespace ql {

namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kHelpColumn = 26;

void append_wrapped(std::string& out, const std::string& first, const std::string& text,
                    std::size_t indent) {
  out += first;
  std::size_t column = first.size();
  if (column >= indent && !text.empty()) {
    out += '\n';
    column = 0;
  }
  for (const std::string& line : internal::wrap(text, kWidth - indent)) {
    out += std::string(indent - column, ' ') + line + "\n";
    column = 0;
  }
  if (text.empty()) out += '\n';
}

std::string paragraph(const std::string& summary) {
  return fmt::format("{}\n", fmt::join(internal::wrap(internal::sentence(summary), kWidth), "\n"));
}

std::string option_text(const Option& option) {
  return fmt::format("{}", fmt::join(internal::option_sentences(option), " "));
}

void append_option(std::string& out, const Option& option) {
  const std::string letter =
      option.letter == 0 ? std::string("    ") : fmt::format("-{}, ", option.letter);
  std::string first = fmt::format("  {}--{}", letter, option.name);
  const std::string value = internal::option_value(option);
  if (!value.empty()) first += " " + value;
  append_wrapped(out, first, option_text(option), kHelpColumn);
}

std::string usage(const ToolTable& tool, const Command& command) {
  std::string line = internal::full_name(tool, command);
  for (const Option& option : command.options) {
    if (option.required) {
      line += fmt::format(" --{} {}", option.name, internal::option_value(option));
    }
  }
  line += " [OPTION...]";
  if (!command.positional.empty()) line += " " + command.positional;
  return line;
}

std::string command_help(const ToolTable& tool, const Command& command) {
  std::string out;
  append_wrapped(out, "Usage:", usage(tool, command), 7);
  out += "\n" + paragraph(command.summary.empty() ? tool.summary : command.summary);
  out += "\nOptions:\n";
  for (const Option* option : internal::all_options(command)) append_option(out, *option);
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const Example& example : command.examples) {
    append_wrapped(out, "", example.meaning + ":", 2);
    out += fmt::format("    {}\n", example.command);
  }
  return out;
}

void append_commands(std::string& out, const ToolTable& tool) {
  out += "\nCommands:\n";
  for (const Command& command : tool.commands) {
    if (!command.name.empty()) append_wrapped(out, "  " + command.name, command.summary, 14);
  }
  out += fmt::format("\n'{} COMMAND --help' describes a command and its options.\n", tool.name);
}

std::string tool_help(const ToolTable& tool) {
  std::string out = fmt::format("Usage: {} COMMAND [OPTION...] [ARGUMENT...]\n\n{}", tool.name,
                                paragraph(tool.summary));
  append_commands(out, tool);
  return out;
}

}  // namespace

std::string render_help(const ToolTable& tool, const Command* command) {
  if (command == nullptr) command = internal::default_command(tool);
  if (command == nullptr) return tool_help(tool);
  std::string out = command_help(tool, *command);
  if (command->name.empty() && internal::has_named_commands(tool)) append_commands(out, tool);
  return out;
}

}  // namespace ql
