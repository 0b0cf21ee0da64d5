// Implements Options, whose getters trust the parser's checks, and what parser and help share.

#include "base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "base/strings.h"

namespace ql {

namespace internal {

const std::vector<Option>& common_options() {
  static const std::vector<Option> common{
      with_letter('h', make_flag("help", "Print this help and exit.")),
      with_letter('V', make_flag("version", "Print the version and exit.")),
      with_letter('q', make_flag("quiet", "Print errors only: no progress, notes or warnings.")),
      with_letter('v', make_flag("verbose", "Print details of what is done, too."))};
  return common;
}

std::vector<const Option*> all_options(const Command& command) {
  std::vector<const Option*> all;
  for (const Option& option : command.options) all.push_back(&option);
  for (const Option& option : common_options()) all.push_back(&option);
  return all;
}

bool has_named_commands(const ToolTable& tool) {
  return !tool.commands.empty() && !tool.commands.back().name.empty();
}

const Command* default_command(const ToolTable& tool) {
  const bool unnamed = !tool.commands.empty() && tool.commands.front().name.empty();
  return unnamed ? tool.commands.data() : nullptr;
}

std::string full_name(const ToolTable& tool, const Command& command) {
  return command.name.empty() ? tool.name : tool.name + " " + command.name;
}

std::string option_value(const Option& option) {
  if (option.type == OptionType::kFlag) return "";
  return option.value_name.empty() ? "VALUE" : option.value_name;
}

std::vector<std::string> option_sentences(const Option& option) {
  std::vector<std::string> sentences{option.help};
  if (!option.choices.empty()) {
    sentences.push_back(fmt::format("One of {}.", fmt::join(option.choices, ", ")));
  }
  if (option.repeatable) sentences.emplace_back("May be given several times.");
  if (option.required) sentences.emplace_back("Required.");
  if (!option.default_value.empty()) {
    sentences.push_back(fmt::format("Default: {}.", option.default_value));
  }
  return sentences;
}

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

std::string sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.back() == '.' ? text : text + ".";
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

}  // namespace internal

namespace {

[[noreturn]] void misuse(const std::string& name, const char* problem) {
  throw std::logic_error(fmt::format("option table: --{} {}", name, problem));
}

}  // namespace

const Option& Options::option(const std::string& name) const {
  for (const Option* option : internal::all_options(*command_)) {
    if (option->name == name) return *option;
  }
  misuse(name, "is not in the table");
}

const std::vector<std::string>& Options::values(const std::string& name) const {
  static const std::vector<std::string> none;
  const auto found = values_.find(name);
  return found == values_.end() ? none : found->second;
}

const std::string& Options::single(const std::string& name) const {
  if (option(name).repeatable) misuse(name, "is repeatable: read it with texts() or integers()");
  const std::vector<std::string>& all = values(name);
  if (all.empty()) misuse(name, "has no value: ask has() first");
  return all.front();
}

bool Options::given(const std::string& name) const {
  option(name);
  const auto found = given_.find(name);
  return found != given_.end() && found->second;
}

bool Options::has(const std::string& name) const {
  option(name);
  return !values(name).empty();
}

void Options::refuse(const std::vector<std::string>& names, const std::string& where,
                     const std::string& what, const std::string& remedy) const {
  for (const std::string& name : names) {
    if (!given(name)) continue;
    throw UsageError(replaced(where, "{}", name), replaced(what, "{}", name),
                     replaced(remedy, "{}", name));
  }
}

bool Options::flag(const std::string& name) const {
  if (option(name).type != OptionType::kFlag) misuse(name, "is not a flag");
  return given(name);
}

std::string Options::text(const std::string& name) const {
  switch (option(name).type) {
    case OptionType::kText:
    case OptionType::kFile:
    case OptionType::kFolder:
    case OptionType::kChoice:
      return single(name);
    default:
      misuse(name, "is not a text");
  }
}

std::int64_t Options::integer(const std::string& name) const {
  if (option(name).type != OptionType::kInteger) misuse(name, "is not a whole number");
  return parse_integer(single(name)).value();
}

double Options::real(const std::string& name) const {
  if (option(name).type != OptionType::kReal) misuse(name, "is not a real number");
  return parse_real(single(name)).value();
}

std::vector<std::int64_t> Options::integers(const std::string& name) const {
  const Option& wanted = option(name);
  const bool list = wanted.type == OptionType::kIntegerList;
  if (!list && !(wanted.type == OptionType::kInteger && wanted.repeatable)) {
    misuse(name, "is not a list of whole numbers");
  }
  std::vector<std::int64_t> all;
  for (const std::string& value : values(name)) {
    const auto items = parse_integer_list(value).value();
    all.insert(all.end(), items.begin(), items.end());
  }
  return all;
}

std::vector<std::string> Options::texts(const std::string& name) const {
  if (!option(name).repeatable) misuse(name, "is not repeatable");
  return values(name);
}

std::map<std::string, std::string> Options::resolved() const {
  std::map<std::string, std::string> all;
  for (const Option& wanted : command_->options) {
    const std::vector<std::string>& typed = values(wanted.name);
    if (!typed.empty()) all[wanted.name] = fmt::format("{}", fmt::join(typed, " "));
  }
  return all;
}

// Checks the form of a value typed on the command line.

namespace internal {

namespace {

std::string integer_problem(const Option& option, const std::string& text) {
  const auto value = parse_integer(text);
  // Digits that do not fit into 64 bits are out of range, and not a wrong form.
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
      return real_problem(option, value);
    case OptionType::kChoice:
      return choice_problem(option, value);
    case OptionType::kIntegerList:
      break;
  }
  for (const std::string& item : split(value, ',')) {
    if (item.empty()) return "expected items separated by single commas";
    if (std::string problem = integer_problem(option, item); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace internal

}  // namespace ql
