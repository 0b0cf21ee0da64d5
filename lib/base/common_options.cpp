#include "base/common_options.h"

#include <cstdint>
#include <utility>

namespace ql {

namespace {

Option number(const char* name, const char* default_value, std::int64_t minimum,
              std::int64_t maximum, std::string help) {
  Option option;
  option.name = name;
  option.type = OptionType::kInteger;
  option.value_name = "N";
  option.default_value = default_value;
  option.minimum = minimum;
  option.maximum = maximum;
  option.help = std::move(help);
  return option;
}

}  // namespace

Option threads_option(const std::string& remark) {
  return number("threads", "0", 0, 1024,
                "Threads; 0 is one for each physical core that this process may use. " + remark);
}

Option timeout_option() {
  // Nanoseconds of that many fit into 64 bits.
  return number("timeout", "600", 1, INT32_MAX,
                "Seconds that one of several processes may let the others wait before they end.");
}

}  // namespace ql
