#include "base/provenance.h"

#include "base/tool.h"

namespace ql {

namespace {

struct Invocation {
  std::string tool, command;
};

Invocation& invocation() {
  static Invocation instance;
  return instance;
}

// A command line and the file names in it may hold any bytes, JSON only UTF-8: others become
// U+FFFD.
Json valid_utf8(const Json& json) {
  return Json::parse(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Json provenance(const Json& configuration) {
  return Json{{"tool", invocation().tool},
              {"version", version()},
              {"command", valid_utf8(invocation().command)},
              {"configuration", valid_utf8(configuration)}};
}

const std::string& invoked_tool() { return invocation().tool; }

void set_provenance(const std::string& tool, const std::string& command) {
  invocation() = {tool, command};
}

}  // namespace ql
