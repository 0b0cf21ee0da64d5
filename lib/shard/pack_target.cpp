#include "shard/pack_target.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace ql::shard {

namespace fs = std::filesystem;

namespace {

bool is_shard_name(const std::string& name) {
  const std::string_view prefix = "shard-", suffix = ".zst";
  if (name.size() <= prefix.size() + suffix.size()) return false;
  if (name.compare(0, prefix.size(), prefix) != 0) return false;
  if (name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()),
                     name.end() - static_cast<std::ptrdiff_t>(suffix.size()),
                     [](char c) { return c >= '0' && c <= '9'; });
}

bool is_packed_file(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool ours = name == "manifest.json" || name == "documents.zst" ||
                    name == "vocabulary.json" || is_shard_name(name);
  return ours && entry.symlink_status().type() == fs::file_type::regular;
}

// Returns the name without a trailing slash.
fs::path named_target(const fs::path& folder) {
  fs::path target = folder.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (!target.has_filename() || target.filename() == "." || target.filename() == "..") {
    throw UsageError("", fmt::format("\"{}\" cannot become a new folder", folder.string()),
                     "give the folder a name of its own");
  }
  return target;
}

// Returns the target without a trailing slash. Calls check(target) when there is a folder that is
// not empty.
template <typename Check>
fs::path checked_target(const fs::path& folder, const Check& check) {
  fs::path target = named_target(folder);
  try {
    const fs::file_status status = fs::symlink_status(target);
    if (!fs::exists(status)) return target;
    if (status.type() != fs::file_type::directory) {
      throw Error(target.string(), "exists and is not a folder", "choose another name");
    }
    if (!fs::is_empty(target)) check(target);
  } catch (const fs::filesystem_error& error) {
    throw SystemError(target.string(), "examine", error.code().value());
  }
  return target;
}

}  // namespace

fs::path check_pack_target(const fs::path& folder, bool force) {
  return checked_target(folder, [force](const fs::path& target) {
    const std::string name = target.string();
    for (const fs::directory_entry& entry : fs::directory_iterator(target)) {
      if (!is_packed_file(entry)) {
        throw Error(name,
                    fmt::format("exists and holds \"{}\", which qlbin did not put there",
                                entry.path().filename().string()),
                    "choose another name, or remove the folder yourself");
      }
    }
    if (!fs::exists(target / "manifest.json")) {
      throw Error(name, "exists, is not empty and has no manifest.json",
                  "choose another name, or remove the folder yourself");
    }
    if (!force) {
      throw Error(name, "holds packed data already",
                  "choose another name, or replace it with --force");
    }
  });
}

fs::path check_empty_target(const fs::path& folder) {
  return checked_target(folder, [](const fs::path& target) {
    throw Error(target.string(), "exists and is not empty",
                "choose another name, or remove the folder yourself");
  });
}

}  // namespace ql::shard
