// Builders for the rows of an option table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"

namespace ql {

// The arguments are the members of Option that they are named after.
inline Option make_option(std::string name, OptionType type, std::string value_name,
                          std::string help, std::string default_value = "") {
  Option option;
  option.name = std::move(name);
  option.type = type;
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  option.default_value = std::move(default_value);
  return option;
}

inline Option make_flag(std::string name, std::string help) {
  return make_option(std::move(name), OptionType::kFlag, "", std::move(help));
}

// The first of the choices is the default.
inline Option make_choice(std::string name, std::string value_name, std::string help,
                          std::vector<std::string> choices) {
  Option option = make_option(std::move(name), OptionType::kChoice, std::move(value_name),
                              std::move(help), choices.front());
  option.choices = std::move(choices);
  return option;
}

// Makes an option of several whole numbers.
inline Option make_integers(std::string name, std::string value_name, std::string help,
                            std::string default_value = "", std::int64_t minimum = INT64_MIN,
                            std::int64_t maximum = INT64_MAX) {
  Option option = make_option(std::move(name), OptionType::kIntegerList, std::move(value_name),
                              std::move(help), std::move(default_value));
  option.minimum = minimum;
  option.maximum = maximum;
  return option;
}

// Makes an option of a whole number "N".
inline Option make_integer(std::string name, std::string help, std::string default_value = "",
                           std::int64_t minimum = INT64_MIN, std::int64_t maximum = INT64_MAX) {
  Option option = make_integers(std::move(name), "N", std::move(help), std::move(default_value),
                                minimum, maximum);
  option.type = OptionType::kInteger;
  return option;
}

// Makes an option of a real number.
inline Option make_real(std::string name, std::string value_name, std::string help,
                        std::string default_value, double least, double most) {
  Option option = make_option(std::move(name), OptionType::kReal, std::move(value_name),
                              std::move(help), std::move(default_value));
  option.least = least;
  option.most = most;
  return option;
}

inline Option required(Option option) {
  option.required = true;
  return option;
}

inline Option repeatable(Option option) {
  option.repeatable = true;
  return option;
}

inline Option without_default(Option option) {
  option.default_value.clear();
  return option;
}

// `words` returns what the completion offers.
inline Option offering(std::function<std::vector<std::string>()> words, Option option) {
  option.offered = std::move(words);
  return option;
}

inline Option with_letter(char letter, Option option) {
  option.letter = letter;
  return option;
}

inline std::vector<Option> joined(std::vector<Option> options, const std::vector<Option>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

}  // namespace ql
