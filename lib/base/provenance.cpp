#include "base/provenance.h"

#include "base/tool.h"

namespace ql {

namespace {

// A command line may hold any bytes, JSON only UTF-8: others become U+FFFD.
std::string valid_utf8(const std::string& text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

}  // namespace

Json provenance(const Json& configuration) {
  return Json{{"tool", tool_name()},
              {"version", version()},
              {"command", valid_utf8(command_line())},
              {"configuration", configuration}};
}

}  // namespace ql
