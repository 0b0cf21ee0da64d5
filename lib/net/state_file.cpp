#include "net/state_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/random_access_file.h"

namespace ql::net {
namespace {

constexpr const char* kFormat = "ql-training-state";
constexpr std::int64_t kVersion = 1;

fs::path state_file(const fs::path& folder) { return folder / "state.json"; }

// The file is read by pieces: mapped, it would count as memory of the process, and weights are
// large. A training that was asked to stop still writes its last checkpoint.
std::string file_hash(const fs::path& path) { return RandomAccessFile(path).hash(false); }

// The checksum covers the file as it is without the checksum.
std::string checksum_of(Json json) {
  json.erase("checksum");
  return content_hash(dump_json(json));
}

Json read_verified(const fs::path& path) {
  Json json = read_json(path);
  const JsonObject object(json, path.string());
  object.check_format(kFormat, kVersion);
  object.refuse_unknown({"format", "version", "state", "files", "checksum"});
  if (object.text("checksum") != checksum_of(json)) {
    throw FormatError(path.string(), "checksum mismatch: the file is damaged");
  }
  return json;
}

}  // namespace

Json read_state_file(const fs::path& folder) {
  const fs::path path = state_file(folder);
  const Json json = read_verified(path);
  return JsonObject(json, path.string()).at("state");
}

void check_files(const fs::path& folder, const std::vector<std::string>& files,
                 const std::string& cure) {
  const fs::path path = state_file(folder);
  const Json json = read_verified(path);
  const JsonObject hashes = JsonObject(json, path.string()).object("files");
  for (const std::string& name : files) {
    if (file_hash(folder / name) != hashes.text(name)) {
      throw FormatError((folder / name).string(),
                        "checksum mismatch with state.json: the file is damaged", cure);
    }
  }
}

bool covers(const fs::path& folder, const std::string& file) {
  const fs::path path = state_file(folder);
  const Json json = read_verified(path);
  return JsonObject(json, path.string()).object("files").has(file);
}

void write_state_file(const fs::path& folder, const std::string& state,
                      const std::vector<std::string>& files) {
  JsonObjectText json, hashes;
  for (const std::string& name : files) {
    hashes.add(name, dump_json(file_hash(folder / name)));
  }
  json.add("format", dump_json(kFormat));
  json.add("version", dump_json(kVersion));
  json.add("state", state);
  json.add("files", hashes.text());
  json.add("checksum", dump_json(content_hash(json.text())));
  write_file_atomically(state_file(folder), json.text());
}

}  // namespace ql::net
