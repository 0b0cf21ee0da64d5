// From the command line to checked values. cxxopts splits the arguments into options and texts;
// what a text means is decided by base/number.h, because cxxopts reads 1.5x as 1.5.

// cxxopts would split values at commas, and std::regex overflows the stack on long arguments.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#define CXXOPTS_NO_REGEX
#include <fmt/format.h>

#include <algorithm>
#include <cxxopts.hpp>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "base/number.h"
#include "base/options.h"
#include "base/options_internal.h"

namespace ql {

namespace internal {

namespace {

std::string integer_problem(const Option& option, const std::string& text) {
  const auto value = parse_integer(text);
  if (!value) return "expected a whole number like 12, 10k, 64M or 64Ki";
  const std::int64_t low = option.minimum, high = option.maximum;
  if (*value >= low && *value <= high) return "";
  if (high == INT64_MAX) return fmt::format("expected at least {}", low);
  if (low == INT64_MIN) return fmt::format("expected at most {}", high);
  return fmt::format("expected {} to {}", low, high);
}

std::string choice_problem(const Option& option, const std::string& text) {
  const std::vector<std::string>& choices = option.choices;
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
  return fmt::format("expected one of {}", fmt::join(choices, ", "));
}

}  // namespace

std::string value_problem(const Option& option, const std::string& value) {
  switch (option.type) {
    case OptionType::kFlag:
    case OptionType::kText:
      return "";
    case OptionType::kFile:
      return value.empty() ? "expected the name of a file" : "";
    case OptionType::kFolder:
      return value.empty() ? "expected the name of a folder" : "";
    case OptionType::kInteger:
      return integer_problem(option, value);
    case OptionType::kReal:
      return parse_real(value) ? "" : "expected a number like 0.25 or 2.5e-4";
    case OptionType::kChoice:
      return choice_problem(option, value);
    case OptionType::kIntegerList:
    case OptionType::kTextList:
      break;
  }
  for (const std::string& item : split(value, ',')) {
    std::string problem;
    if (item.empty()) {
      problem = "expected items separated by single commas";
    } else if (option.type == OptionType::kIntegerList) {
      problem = integer_problem(option, item);
    }
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace internal

namespace {

using internal::all_options;

// What cxxopts stores for a flag; no user types this, so --quiet=yes can be told from --quiet.
constexpr const char* kFlagMark = "\001";

// Composes UsageErrors for one command.
class Complaint {
 public:
  Complaint(const ToolTable& tool, const Command* command)
      : where_(command == nullptr ? "" : command->name),
        see_(fmt::format("see '{} --help'",
                         command == nullptr ? tool.name : internal::full_name(tool, *command))) {}

  [[noreturn]] void raise(const std::string& what, const std::string& suggestion = "") const {
    throw UsageError(
        where_, what,
        suggestion.empty() ? see_ : fmt::format("did you mean {}? ({})", suggestion, see_));
  }

 private:
  std::string where_, see_;
};

std::string unknown_option(const std::string& typed) { return "unknown option " + typed; }

// The nearest option to "--typed=value", with its dashes.
std::string nearest_option(const std::string& typed, const std::vector<const Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const Option* option : options) names.push_back(option->name);
  const std::size_t dashes = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string found = nearest(typed.substr(dashes), names);
  return found.empty() ? "" : "--" + found;
}

const Command& pick_command(const ToolTable& tool, const std::vector<std::string>& arguments) {
  if (tool.commands.empty()) throw std::logic_error("option table: no command");
  if (!internal::has_named_commands(tool)) return tool.commands.front();
  std::vector<std::string> names;
  for (const Command& command : tool.commands) names.push_back(command.name);
  const Complaint complaint(tool, nullptr);
  const std::string expected = fmt::format("expected one of {}", fmt::join(names, ", "));
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
                    nearest_option(name, common));
  }
  complaint.raise(fmt::format("unknown command '{}', {}", typed, expected), nearest(typed, names));
}

cxxopts::Options declare(const ToolTable& tool, const std::vector<const Option*>& options) {
  cxxopts::Options parser(tool.name);
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

// The option's name between the typographic quotes of a cxxopts message, with its dashes.
std::string quoted_option(const std::string& message) {
  const std::size_t begin = message.find(cxxopts::LQUOTE) + cxxopts::LQUOTE.size();
  const std::string name = message.substr(begin, message.rfind(cxxopts::RQUOTE) - begin);
  return (name.size() == 1 ? "-" : "--") + name;
}

bool takes_value(const std::vector<const Option*>& options, const std::string& name) {
  const auto same = [&](const Option* option) {
    return option->type != OptionType::kFlag &&
           (name == option->name || (name.size() == 1 && name[0] == option->letter));
  };
  return std::any_of(options.begin(), options.end(), same);
}

// "-foa/b" becomes "-fo" "a/b": of values behind their letter cxxopts knows only letters and
// digits. Arguments that are themselves values are left alone.
std::vector<std::string> separate_values(const std::vector<const Option*>& options,
                                         const std::vector<std::string>& arguments) {
  std::vector<std::string> separated;
  bool is_value = false;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    const std::string& argument = *at;
    separated.push_back(argument);
    if (std::exchange(is_value, false) || argument.size() < 2 || argument[0] != '-') continue;
    if (argument == "--") {
      separated.insert(separated.end(), at + 1, arguments.end());
      break;
    }
    if (argument[1] == '-') {
      is_value = takes_value(options, argument.substr(2));
      continue;
    }
    std::size_t letter = 1;
    while (letter < argument.size() && !takes_value(options, argument.substr(letter, 1))) ++letter;
    if (letter + 1 < argument.size()) {
      separated.back() = argument.substr(0, letter + 1);
      separated.push_back(argument.substr(letter + 1));
    } else {
      is_value = letter + 1 == argument.size();
    }
  }
  return separated;
}

cxxopts::ParseResult split_arguments(cxxopts::Options& parser,
                                     const std::vector<const Option*>& options,
                                     const std::vector<std::string>& arguments,
                                     const Complaint& complaint) {
  std::vector<const char*> pointers = {""};
  const std::vector<std::string> separated = separate_values(options, arguments);
  for (const std::string& argument : separated) pointers.push_back(argument.c_str());
  try {
    return parser.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const cxxopts::exceptions::no_such_option& error) {
    const std::string typed = quoted_option(error.what());
    complaint.raise(unknown_option(typed), nearest_option(typed, options));
  } catch (const cxxopts::exceptions::missing_argument& error) {
    complaint.raise(fmt::format("option {} needs a value", quoted_option(error.what())));
  } catch (const cxxopts::exceptions::invalid_option_syntax& error) {
    const std::string text = error.what();
    const std::size_t begin = text.find(cxxopts::LQUOTE) + cxxopts::LQUOTE.size();
    const std::string typed = text.substr(begin, text.rfind(cxxopts::RQUOTE) - begin);
    const std::string name = typed.substr(0, typed.find('='));
    complaint.raise(unknown_option(name), nearest_option(name, options));
  } catch (const cxxopts::exceptions::exception& error) {
    complaint.raise(error.what());
  }
}

void check_value(const Option& option, const std::string& value, const Complaint& complaint) {
  if (option.type == OptionType::kFlag && value != kFlagMark) {
    complaint.raise(fmt::format("option --{} takes no value, found '{}'", option.name, value));
  }
  const std::string problem = internal::value_problem(option, value);
  if (!problem.empty()) {
    complaint.raise(fmt::format("option --{}: {}, found '{}'", option.name, problem, value),
                    nearest(value, option.choices));
  }
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
  const std::vector<const Option*> table = all_options(command);
  const Complaint complaint(tool, &command);
  const std::vector<std::string> rest(
      arguments.begin() + (internal::has_named_commands(tool) ? 1 : 0), arguments.end());

  cxxopts::Options parser = declare(tool, table);
  const cxxopts::ParseResult parsed = split_arguments(parser, table, rest, complaint);
  Options options;
  options.command_ = &command;
  options.positional_ = parsed.unmatched();
  for (const cxxopts::KeyValue& pair : parsed.arguments()) {
    const Option& option = options.option(pair.key());
    check_value(option, pair.value(), complaint);
    std::vector<std::string>& values = options.values_[option.name];
    if (option.type == OptionType::kFlag) {
      values = {"true"};
    } else {
      if (!values.empty() && !option.repeatable) {
        complaint.raise(fmt::format("option --{} is given twice, '{}' and '{}'", option.name,
                                    values.front(), pair.value()));
      }
      values.push_back(pair.value());
    }
    options.given_[option.name] = true;
  }
  // A question about the tool needs no complete command line.
  const bool asks = options.given("help") || options.given("version");
  for (const Option& option : command.options) {
    if (options.has(option.name)) continue;
    if (!option.default_value.empty()) {
      const std::string problem = internal::value_problem(option, option.default_value);
      if (!problem.empty()) {
        throw std::logic_error(
            fmt::format("option table: default of --{}: {}", option.name, problem));
      }
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
