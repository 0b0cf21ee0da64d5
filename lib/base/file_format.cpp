#include "base/file_format.h"

namespace ql {

void check_format(const JsonObject& json, const std::string& format, std::int64_t version) {
  const std::string found = json.text("format");
  if (found != format) {
    throw FormatError(json.where(), fmt::format("format is '{}', expected '{}'", found, format));
  }
  const std::int64_t found_version = json.integer("version");
  if (found_version != version) {
    throw UnknownVersion(
        json.where(),
        fmt::format("version is {}, this program reads version {}", found_version, version),
        "use the release that wrote the file");
  }
}

}  // namespace ql
