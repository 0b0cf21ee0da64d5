// Returns the checked values of a command line, and has the functions that parser and help share.

#include "base/options.h"

#include <fmt/format.h>

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

}  // namespace internal

[[noreturn]] static void misuse(const std::string& name, const char* problem) {
  throw std::logic_error(fmt::format("option table: --{} {}", name, problem));
}

const Option& Options::option(const std::string& name) const {
  for (const Option* option : internal::all_options(*command_)) {
    if (option->name == name) return *option;
  }
  misuse(name, "is not in the table");
}

std::vector<std::string> Options::values(const std::string& name) const {
  if (given(name)) return typed_.at(name);
  const std::string& usual = option(name).default_value;
  if (usual.empty()) return {};
  return {usual};
}

std::string Options::single(const std::string& name) const {
  if (option(name).repeatable) misuse(name, "is repeatable: read it with texts() or integers()");
  const std::vector<std::string> all = values(name);
  if (all.empty()) misuse(name, "has no value: ask has() first");
  return all.front();
}

bool Options::given(const std::string& name) const { return typed_.count(option(name).name) != 0; }

bool Options::has(const std::string& name) const { return !values(name).empty(); }

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
  const OptionType type = option(name).type;
  if (type != OptionType::kText && type != OptionType::kFile && type != OptionType::kFolder &&
      type != OptionType::kChoice) {
    misuse(name, "is not a text");
  }
  return single(name);
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
  if (option(name).type != OptionType::kIntegerList) misuse(name, "is not a list of whole numbers");
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
    if (has(wanted.name)) all[wanted.name] = fmt::format("{}", fmt::join(values(wanted.name), " "));
  }
  return all;
}

}  // namespace ql
