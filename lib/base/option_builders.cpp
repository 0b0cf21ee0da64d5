#include "base/option_builders.h"

#include <utility>

namespace ql {

Option make_option(std::string name, OptionType type, std::string value_name, std::string help,
                   std::string default_value) {
  Option option;
  option.name = std::move(name);
  option.type = type;
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  option.default_value = std::move(default_value);
  return option;
}

Option make_flag(std::string name, std::string help) {
  return make_option(std::move(name), OptionType::kFlag, "", std::move(help));
}

Option make_choice(std::string name, std::string value_name, std::string help,
                   std::vector<std::string> choices) {
  Option option = make_option(std::move(name), OptionType::kChoice, std::move(value_name),
                              std::move(help), choices.front());
  option.choices = std::move(choices);
  return option;
}

Option make_integer(std::string name, std::string help, std::string default_value,
                    std::int64_t minimum, std::int64_t maximum) {
  Option option = make_option(std::move(name), OptionType::kInteger, "N", std::move(help),
                              std::move(default_value));
  option.minimum = minimum;
  option.maximum = maximum;
  return option;
}

Option make_integers(std::string name, std::string value_name, std::string help,
                     std::string default_value, std::int64_t minimum, std::int64_t maximum) {
  Option option =
      make_integer(std::move(name), std::move(help), std::move(default_value), minimum, maximum);
  option.type = OptionType::kIntegerList;
  option.value_name = std::move(value_name);
  return option;
}

Option required(Option option) {
  option.required = true;
  return option;
}

Option repeatable(Option option) {
  option.repeatable = true;
  return option;
}

Option without_default(Option option) {
  option.default_value.clear();
  return option;
}

Option with_letter(char letter, Option option) {
  option.letter = letter;
  return option;
}

std::vector<Option> joined(std::vector<Option> options, const std::vector<Option>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

}  // namespace ql
