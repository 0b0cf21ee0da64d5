// Splits a command line into options and texts with cxxopts, and rewords the errors of cxxopts.

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/options.h"
#include "base/strings.h"

// cxxopts would split values at commas, and std::regex overflows the stack on long arguments.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#define CXXOPTS_NO_REGEX
#include <fmt/format.h>

#include <algorithm>
#include <cxxopts.hpp>
#include <stdexcept>
#include <utility>

namespace ql::internal {

namespace {

using OptionList = std::vector<const Option*>;

// cxxopts stores this value for a flag without one. No user types it, so it distinguishes --quiet
// from --quiet=yes.
constexpr const char* kFlagMark = "\001";

cxxopts::Options declare(const OptionList& options) {
  cxxopts::Options parser("");
  for (const Option* option : options) {
    auto value = cxxopts::value<std::string>();
    if (option->type == OptionType::kFlag) value->implicit_value(kFlagMark);
    const std::string names =
        option->letter == 0 ? option->name : fmt::format("{},{}", option->letter, option->name);
    try {
      if (option->name.size() < 2) throw std::logic_error("option table: a name is too short");
      parser.add_options()(names, "", value);
    } catch (const cxxopts::exceptions::specification& error) {
      throw std::logic_error(fmt::format("option table: {}", error.what()));
    }
  }
  return parser;
}

// Returns the text between the typographic quotes of a cxxopts message.
std::string quoted(const std::string& message) {
  const std::size_t begin = message.find(cxxopts::LQUOTE) + cxxopts::LQUOTE.size();
  return message.substr(begin, message.rfind(cxxopts::RQUOTE) - begin);
}

std::string with_dashes(const std::string& name) { return (name.size() == 1 ? "-" : "--") + name; }

[[noreturn]] void raise_unknown(const std::string& typed, const OptionList& options,
                                const Complaint& complaint) {
  const std::string name = typed.substr(0, typed.find('='));
  complaint.raise("unknown option " + name, nearest_option(name, options));
}

// Returns the option called --NAME, or -LETTER when `name` is one letter, or null.
const Option* find_option(const OptionList& options, const std::string& name) {
  const auto same = [&](const Option* option) {
    return name == option->name || (name.size() == 1 && name[0] == option->letter);
  };
  const auto found = std::find_if(options.begin(), options.end(), same);
  return found == options.end() ? nullptr : *found;
}

bool takes_value(const Option* option) {
  return option != nullptr && option->type != OptionType::kFlag;
}

// In "-o --force" the value was forgotten. A user who means this value writes "--output=--force".
void refuse_option_as_value(const std::string& argument, const std::string& before,
                            const OptionList& options, const Complaint& complaint) {
  if (argument.rfind("--", 0) != 0) return;
  const std::string name = argument.substr(2, argument.find('=') - 2);
  if (name.size() < 2 || find_option(options, name) == nullptr) return;
  complaint.raise(fmt::format("option {} needs a value, found the option --{}", before, name));
}

// Splits "-foa/b" into "-fo" "a/b", because cxxopts accepts only letters and digits in a value that
// follows its letter directly. Arguments that are themselves values are left alone.
std::vector<std::string> separate_values(const std::vector<std::string>& arguments,
                                         const OptionList& options, const Complaint& complaint) {
  std::vector<std::string> separated;
  bool is_value = false;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    const std::string& argument = *at;
    if (is_value) refuse_option_as_value(argument, *(at - 1), options, complaint);
    separated.push_back(argument);
    if (std::exchange(is_value, false) || argument.size() < 2 || argument[0] != '-') continue;
    if (argument == "--") {
      separated.insert(separated.end(), at + 1, arguments.end());
      break;
    }
    if (argument[1] == '-') {
      is_value = argument.size() > 3 && takes_value(find_option(options, argument.substr(2)));
      continue;
    }
    std::size_t letter = 1;
    while (letter < argument.size() &&
           !takes_value(find_option(options, argument.substr(letter, 1)))) {
      ++letter;
    }
    if (letter + 1 < argument.size()) {
      separated.back() = argument.substr(0, letter + 1);
      separated.push_back(argument.substr(letter + 1));
    } else {
      is_value = letter + 1 == argument.size();
    }
  }
  return separated;
}

cxxopts::ParseResult parse_with_cxxopts(cxxopts::Options& parser,
                                        const std::vector<std::string>& arguments,
                                        const OptionList& options, const Complaint& complaint) {
  std::vector<const char*> pointers = {""};
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  try {
    return parser.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const cxxopts::exceptions::no_such_option& error) {
    raise_unknown(with_dashes(quoted(error.what())), options, complaint);
  } catch (const cxxopts::exceptions::missing_argument& error) {
    complaint.raise(fmt::format("option {} needs a value", with_dashes(quoted(error.what()))));
  } catch (const cxxopts::exceptions::invalid_option_syntax& error) {
    raise_unknown(quoted(error.what()), options, complaint);
  } catch (const cxxopts::exceptions::exception& error) {
    complaint.raise(error.what());
  }
}

}  // namespace

SplitLine split_line(const std::vector<std::string>& arguments, const OptionList& options,
                     const Complaint& complaint) {
  cxxopts::Options parser = declare(options);
  const auto parsed = parse_with_cxxopts(parser, separate_values(arguments, options, complaint),
                                         options, complaint);
  SplitLine line;
  line.positional = parsed.unmatched();
  for (const cxxopts::KeyValue& pair : parsed.arguments()) {
    const Option& option = *find_option(options, pair.key());
    const bool flag = option.type == OptionType::kFlag;
    if (flag && pair.value() != kFlagMark) {
      complaint.raise(
          fmt::format("option --{} takes no value, found '{}'", option.name, pair.value()));
    }
    line.uses.emplace_back(&option, flag ? "true" : pair.value());
  }
  return line;
}

}  // namespace ql::internal

namespace ql {

// Turns the command line into checked values.

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

// Returns the nearest option to "--typed=value", with its dashes.
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
  // --help and --version need no complete command line.
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
