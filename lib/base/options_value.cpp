// Checks what a value typed on the command line looks like.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/number.h"
#include "base/options_internal.h"

namespace ql {

namespace internal {

namespace {

std::string integer_problem(const Option& option, const std::string& text) {
  const auto value = parse_integer(text);
  // Digits that are no number of 64 bits are out of range.
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
