// Splits a command line into options and other arguments with cxxopts, rewords the errors of
// cxxopts, and checks the values.

#include "base/error.h"
#include "base/options.h"
#include "base/strings.h"

// Without this, cxxopts uses std::regex, which overflows the stack on long arguments.
#define CXXOPTS_NO_REGEX
#include <fmt/format.h>

#include <algorithm>
#include <cxxopts.hpp>
#include <stdexcept>
#include <utility>

namespace ql {

using namespace internal;

namespace {

using OptionList = std::vector<const Option*>;

// cxxopts stores this value for a flag that is given without a value. No user types it, so it
// distinguishes --quiet from --quiet=yes.
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

// Composes UsageErrors about one command, or about the tool when `command` is null. The errors name
// the command, may suggest a name, and end with a pointer to the help.
class Complaint {
 public:
  Complaint(const ToolTable& tool, const Command* command)
      : where_(command == nullptr ? "" : command->name),
        see_(fmt::format("see '{} --help'",
                         command == nullptr ? tool.name : full_name(tool, *command))) {}
  [[noreturn]] void raise(const std::string& what, const std::string& suggestion = "") const {
    throw UsageError(
        where_, what,
        suggestion.empty() ? see_ : fmt::format("did you mean {}? ({})", suggestion, see_));
  }

 private:
  std::string where_, see_;
};

// Returns the option nearest to `typed`, or "". Both names have their dashes.
std::string nearest_option(const std::string& typed, const std::vector<const Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const Option* option : options) names.push_back(option->name);
  const std::size_t dashes = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string found = nearest(typed.substr(dashes), names);
  return found.empty() ? "" : "--" + found;
}

// Returns the text between the typographic quotes of a cxxopts message.
std::string quoted(const std::string& message) {
  const std::size_t begin = message.find(cxxopts::LQUOTE) + cxxopts::LQUOTE.size();
  return message.substr(begin, message.rfind(cxxopts::RQUOTE) - begin);
}

std::string with_dashes(const std::string& name) { return (name.size() == 1 ? "-" : "--") + name; }

// Returns the option with this name (or letter, if `name` is one letter), or null.
const Option* find_option(const OptionList& options, const std::string& name) {
  const auto same = [&](const Option* option) {
    return name == option->name || (name.size() == 1 && name[0] == option->letter);
  };
  const auto found = std::find_if(options.begin(), options.end(), same);
  return found == options.end() ? nullptr : *found;
}

[[noreturn]] void raise_unknown(const std::string& typed, const OptionList& options,
                                const Complaint& complaint) {
  const std::string name = typed.substr(0, typed.find('='));
  // cxxopts does not accept "-q=1" in any form, so it calls this an unknown option.
  const bool letters = name.size() > 1 && name[1] != '-' && name.size() < typed.size();
  const Option* flag = letters ? find_option(options, name.substr(name.size() - 1)) : nullptr;
  if (flag != nullptr) {
    complaint.raise(fmt::format("option --{} takes no value, found '{}'", flag->name,
                                typed.substr(name.size() + 1)));
  }
  complaint.raise("unknown option " + name, nearest_option(name, options));
}

bool takes_value(const Option* option) {
  return option != nullptr && option->type != OptionType::kFlag;
}

// Refuses "-o --force", where the value was forgotten. A user who means the value "--force" writes
// "--output=--force".
void refuse_option_as_value(const std::string& argument, const std::string& before,
                            const OptionList& options, const Complaint& complaint) {
  if (argument.rfind("--", 0) != 0) return;
  const std::string name = argument.substr(2, argument.find('=') - 2);
  if (name.size() < 2 || find_option(options, name) == nullptr) return;
  complaint.raise(fmt::format("option {} needs a value, found the option --{}", before, name));
}

// If a value directly follows the letter of its option, cxxopts accepts only letters and digits in
// this value. So "-oa/b" becomes "-o" "a/b", and "-foa/b", with a flag -f, becomes "-fo" "a/b". An
// argument that is itself a value is not split.
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

// Holds an unchecked command line in its parts. `uses` has every use of an option with its value
// ("true" for a flag), in the order of the command line. `positional` has the other arguments.
struct SplitLine {
  std::vector<std::pair<const Option*, std::string>> uses;
  std::vector<std::string> positional;
};

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

const Command& pick_command(const ToolTable& tool, const std::vector<std::string>& arguments) {
  if (tool.commands.empty()) throw std::logic_error("option table: no command");
  const Command* unnamed = default_command(tool);
  if (!has_named_commands(tool)) return *unnamed;
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
    for (const Option& option : common_options()) common.push_back(&option);
    // An option that is spelled correctly needs no suggestion.
    const std::string near = nearest_option(name, common);
    complaint.raise(fmt::format("the command must come first: {}, found '{}'", expected, name),
                    near == name ? "" : near);
  }
  complaint.raise(fmt::format("unknown command '{}', {}", typed, expected), nearest(typed, names));
}

// These functions return the problem with a given value, or "".

std::string integer_problem(const Option& option, const std::string& text) {
  const auto value = parse_integer(text);
  // A number that does not fit into 64 bits is out of range, not malformed.
  const bool huge = !value && !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  if (!value && !huge) return "expected a whole number like 12, 10k, 64M or 64Ki";
  const std::int64_t low = option.minimum, high = option.maximum;
  if (value && *value >= low && *value <= high) return "";
  if (high == INT64_MAX && !huge) return fmt::format("expected at least {}", low);
  if (low == INT64_MIN) return fmt::format("expected at most {}", high);
  return fmt::format("expected {} to {}", low, high);
}

std::string real_problem(const Option& option, const std::string& value) {
  const std::optional<double> number = parse_real(value);
  if (!number) return "expected a number like 0.25 or 2.5e-4";
  if (*number >= option.least && *number <= option.most) return "";
  return option.most == HUGE_VAL ? fmt::format("expected at least {}", option.least)
                                 : fmt::format("expected {} to {}", option.least, option.most);
}

std::string choice_problem(const Option& option, const std::string& text) {
  const std::vector<std::string>& choices = option.choices;
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
  return fmt::format("expected one of {}", fmt::join(choices, ", "));
}

// Returns the problem with one value given for `option` ("expected a number ..."), or "".
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
      return real_problem(option, value);
    case OptionType::kChoice:
      return choice_problem(option, value);
    case OptionType::kIntegerList:
      break;
  }
  for (const std::string& item : split(value, ',')) {
    if (item.empty()) return "expected whole numbers separated by single commas";
    if (std::string problem = integer_problem(option, item); !problem.empty()) return problem;
  }
  return "";
}

void check_value(const Option& option, const std::string& value, const Complaint& complaint) {
  const std::string problem = value_problem(option, value);
  if (problem.empty()) return;
  complaint.raise(fmt::format("option --{}: {}, found '{}'", option.name, problem, value),
                  nearest(value, option.choices));
}

void check_default(const Option& option) {
  const std::string problem = value_problem(option, option.default_value);
  if (problem.empty()) return;
  throw std::logic_error(fmt::format("option table: default of --{}: {}", option.name, problem));
}

// Holds the smallest and largest number of file names that a pattern like "[FILE...|-]" allows.
struct PositionalRange {
  std::size_t minimum = 0;
  std::size_t maximum = 0;
};

PositionalRange positional_range(const Command& command) {
  PositionalRange range;
  if (command.positional.empty()) return range;
  for (const std::string& item : split(command.positional, ' ')) {
    if (item.empty()) continue;
    if (item[0] != '[') ++range.minimum;
    if (range.maximum != SIZE_MAX) ++range.maximum;
    if (item.find("...") != std::string::npos) range.maximum = SIZE_MAX;
  }
  return range;
}

void check_positional(const Command& command, const std::vector<std::string>& positional,
                      const Complaint& complaint) {
  const auto [minimum, maximum] = positional_range(command);
  if (positional.size() > maximum) {
    complaint.raise(fmt::format("unexpected argument '{}'", positional[maximum]));
  }
  if (positional.size() < minimum) {
    complaint.raise(fmt::format("expected {}, found {}", command.positional,
                                counted(static_cast<std::int64_t>(positional.size()), "argument")));
  }
  if (std::find(positional.begin(), positional.end(), "") != positional.end()) {
    complaint.raise("expected the name of a file or folder, found ''");
  }
}

}  // namespace

Options parse_options(const ToolTable& tool, const std::vector<std::string>& arguments) {
  const Command& command = pick_command(tool, arguments);
  const Complaint complaint(tool, &command);
  const std::vector<std::string> rest(arguments.begin() + (command.name.empty() ? 0 : 1),
                                      arguments.end());
  SplitLine line = split_line(rest, all_options(command), complaint);

  Options options;
  options.command_ = &command;
  options.positional_ = std::move(line.positional);
  for (const auto& [option, value] : line.uses) {
    check_value(*option, value, complaint);
    std::vector<std::string>& values = options.typed_[option->name];
    if (option->type == OptionType::kFlag) {
      values = {value};
    } else if (values.empty() || option->repeatable) {
      values.push_back(value);
    } else {
      complaint.raise(fmt::format("option --{} is given twice, '{}' and '{}'", option->name,
                                  values.front(), value));
    }
  }
  // --help and --version need no complete command line.
  const bool asks = options.given("help") || options.given("version");
  for (const Option& option : command.options) {
    if (options.given(option.name)) continue;
    if (!option.default_value.empty()) {
      check_default(option);
    } else if (option.required && !asks) {
      complaint.raise(fmt::format("option --{} {} is required", option.name, option_value(option)));
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
