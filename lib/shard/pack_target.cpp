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

void check_existing(const fs::path& folder, bool force) {
  const std::string name = folder.string();
  const fs::file_status status = fs::symlink_status(folder);
  if (!fs::exists(status)) return;
  if (status.type() != fs::file_type::directory) {
    throw Error(name, "exists and is not a folder", "choose another name");
  }
  if (fs::is_empty(folder)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!is_packed_file(entry)) {
      throw Error(name,
                  fmt::format("exists and holds \"{}\", which qlbin did not put there",
                              entry.path().filename().string()),
                  "choose another name, or remove the folder yourself");
    }
  }
  if (!fs::exists(folder / "manifest.json")) {
    throw Error(name, "exists, is not empty and has no manifest.json",
                "choose another name, or remove the folder yourself");
  }
  if (!force) {
    throw Error(name, "holds packed data already",
                "choose another name, or replace it with --force");
  }
}

// Without a trailing slash.
fs::path named_target(const fs::path& folder) {
  fs::path target = folder.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (!target.has_filename() || target.filename() == "." || target.filename() == "..") {
    throw UsageError("", fmt::format("\"{}\" cannot become a new folder", folder.string()),
                     "give the folder a name of its own");
  }
  return target;
}

// Runs `check` with the target, and says what file could not be looked at.
template <typename Check>
void examine(const fs::path& target, const Check& check) {
  try {
    check();
  } catch (const fs::filesystem_error& error) {
    throw SystemError(target.string(), "examine", error.code().value());
  }
}

void make_parents(const fs::path& target) {
  std::error_code error;
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
  if (error) throw SystemError(target.string(), "create the folder around it", error.value());
}

}  // namespace

fs::path check_pack_target(const fs::path& folder, bool force) {
  fs::path target = named_target(folder);
  examine(target, [&] { check_existing(target, force); });
  return target;
}

fs::path prepare_pack_target(const fs::path& folder, bool force) {
  fs::path target = check_pack_target(folder, force);
  make_parents(target);
  return target;
}

fs::path prepare_empty_target(const fs::path& folder) {
  fs::path target = named_target(folder);
  examine(target, [&] {
    const fs::file_status status = fs::symlink_status(target);
    if (!fs::exists(status)) return;
    if (status.type() != fs::file_type::directory) {
      throw Error(target.string(), "exists and is not a folder", "choose another name");
    }
    if (!fs::is_empty(target)) {
      throw Error(target.string(), "exists and is not empty",
                  "choose another name, or remove the folder yourself");
    }
  });
  make_parents(target);
  return target;
}

}  // namespace ql::shard
