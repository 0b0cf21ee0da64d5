// Turns the command line into checked values.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "base/options.h"
#include "base/options_internal.h"

namespace ql {

namespace internal {

Complaint::Complaint(const ToolTable& tool, const Command* command)
    : where_(command == nullptr ? "" : command->name),
      see_(fmt::format("see '{} --help'",
                       command == nullptr ? tool.name : full_name(tool, *command))) {}

void Complaint::raise(const std::string& what, const std::string& suggestion) const {
  throw UsageError(
      where_, what,
      suggestion.empty() ? see_ : fmt::format("did you mean {}? ({})", suggestion, see_));
}

// The nearest option to "--typed=value", with its dashes.
std::string nearest_option(const std::string& typed, const std::vector<const Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const Option* option : options) names.push_back(option->name);
  const std::size_t dashes = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string found = nearest(typed.substr(dashes), names);
  return found.empty() ? "" : "--" + found;
}

}  // namespace internal

namespace {

using internal::Complaint;

const Command& pick_command(const ToolTable& tool, const std::vector<std::string>& arguments) {
  if (tool.commands.empty()) throw std::logic_error("option table: no command");
  const Command* unnamed = internal::default_command(tool);
  if (!internal::has_named_commands(tool)) return *unnamed;
  if (unnamed != nullptr && !unnamed->positional.empty()) {
    throw std::logic_error("option table: a default command with positional arguments");
  }
  std::vector<std::string> names;
  for (const Command& command : tool.commands) {
    if (!command.name.empty()) names.push_back(command.name);
  }
  const Complaint complaint(tool, nullptr);
  const std::string expected = fmt::format("expected one of {}", fmt::join(names, ", "));
  const bool by_option = arguments.empty() || arguments.front().rfind('-', 0) == 0;
  if (unnamed != nullptr && by_option) return *unnamed;
  if (arguments.empty()) complaint.raise("no command given, " + expected);
  const std::string& typed = arguments.front();
  for (const Command& command : tool.commands) {
    if (command.name == typed) return command;
  }
  if (!typed.empty() && typed[0] == '-') {
    const std::string name = typed.substr(0, typed.find('='));
    std::vector<const Option*> common;
    for (const Option& option : internal::common_options()) common.push_back(&option);
    complaint.raise(fmt::format("the command comes first, {}, found '{}'", expected, name),
                    internal::nearest_option(name, common));
  }
  complaint.raise(fmt::format("unknown command '{}', {}", typed, expected), nearest(typed, names));
}

void check_value(const Option& option, const std::string& value, const Complaint& complaint) {
  const std::string problem = internal::value_problem(option, value);
  if (problem.empty()) return;
  complaint.raise(fmt::format("option --{}: {}, found '{}'", option.name, problem, value),
                  nearest(value, option.choices));
}

void check_default(const Option& option) {
  const std::string problem = internal::value_problem(option, option.default_value);
  if (problem.empty()) return;
  throw std::logic_error(fmt::format("option table: default of --{}: {}", option.name, problem));
}

void check_positional(const Command& command, const std::vector<std::string>& positional,
                      const Complaint& complaint) {
  const auto [minimum, maximum] = internal::positional_range(command);
  if (positional.size() > maximum) {
    complaint.raise(fmt::format("unexpected argument '{}'", positional[maximum]));
  }
  if (positional.size() < minimum) {
    complaint.raise(fmt::format("expected {}, found {} argument{}", command.positional,
                                positional.size(), positional.size() == 1 ? "" : "s"));
  }
}

}  // namespace

Options parse_options(const ToolTable& tool, const std::vector<std::string>& arguments) {
  const Command& command = pick_command(tool, arguments);
  const Complaint complaint(tool, &command);
  const std::vector<std::string> rest(arguments.begin() + (command.name.empty() ? 0 : 1),
                                      arguments.end());
  internal::SplitLine line = internal::split_line(rest, internal::all_options(command), complaint);

  Options options;
  options.command_ = &command;
  options.positional_ = std::move(line.positional);
  for (const auto& [option, value] : line.uses) {
    check_value(*option, value, complaint);
    std::vector<std::string>& values = options.values_[option->name];
    if (option->type == OptionType::kFlag) {
      values = {value};
    } else if (values.empty() || option->repeatable) {
      values.push_back(value);
    } else {
      complaint.raise(fmt::format("option --{} is given twice, '{}' and '{}'", option->name,
                                  values.front(), value));
    }
    options.given_[option->name] = true;
  }
  // A question about the tool needs no complete command line.
  const bool asks = options.given("help") || options.given("version");
  for (const Option& option : command.options) {
    if (options.has(option.name)) continue;
    if (!option.default_value.empty()) {
      check_default(option);
      options.values_[option.name] = {option.default_value};
    } else if (option.required && !asks) {
      complaint.raise(
          fmt::format("option --{} {} is required", option.name, internal::option_value(option)));
    }
  }
  if (asks) return options;
  if (options.given("quiet") && options.given("verbose")) {
    complaint.raise("--quiet and --verbose contradict each other");
  }
  check_positional(command, options.positional_, complaint);
  return options;
}

}  // namespace ql
