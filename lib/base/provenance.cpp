#include "base/provenance.h"

#include "base/tool.h"

namespace ql {

namespace {

// A command line and the file names in it may hold any bytes, JSON only UTF-8: others become
// U+FFFD.
Json valid_utf8(const Json& json) {
  return Json::parse(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Json provenance(const Json& configuration) {
  return Json{{"tool", tool_name()},
              {"version", version()},
              {"command", valid_utf8(command_line())},
              {"configuration", valid_utf8(configuration)}};
}

}  // namespace ql
