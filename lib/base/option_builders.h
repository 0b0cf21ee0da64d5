// Builders for the rows of an option table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"

namespace ql {

// The arguments are the members of Option that they are named after.
Option make_option(std::string name, OptionType type, std::string value_name, std::string help,
                   std::string default_value = "");
Option make_flag(std::string name, std::string help);
// The first of the choices is the default.
Option make_choice(std::string name, std::string value_name, std::string help,
                   std::vector<std::string> choices);
// A whole number "N", and several.
Option make_integer(std::string name, std::string help, std::string default_value = "",
                    std::int64_t minimum = INT64_MIN, std::int64_t maximum = INT64_MAX);
Option make_integers(std::string name, std::string value_name, std::string help,
                     std::string default_value = "", std::int64_t minimum = INT64_MIN,
                     std::int64_t maximum = INT64_MAX);

Option required(Option option);
Option repeatable(Option option);
Option without_default(Option option);
Option with_letter(char letter, Option option);
std::vector<Option> joined(std::vector<Option> options, const std::vector<Option>& more);

}  // namespace ql
