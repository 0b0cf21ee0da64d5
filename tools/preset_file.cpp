#include "preset_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/child.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/number.h"

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> preset_folders() {
  std::vector<fs::path> folders;
  if (const char* own = std::getenv("QL_PRESETS")) {
    for (const std::string& folder : ql::split(own, ':')) {
      if (!folder.empty()) folders.emplace_back(folder);
    }
  }
  // QL_PRESETS_FOLDER is relative to the program's folder.
  folders.push_back((ql::program_folder() / QL_PRESETS_FOLDER).lexically_normal());
  return folders;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::error_code unknown;
  std::vector<std::string> names;
  for (const fs::path& folder : preset_folders()) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, unknown)) {
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path preset_file(const std::string& text) {
  std::error_code unknown;
  if (text.find('/') != std::string::npos || fs::exists(text, unknown)) return text;
  std::vector<std::string> folders;
  for (const fs::path& folder : preset_folders()) {
    for (const fs::path& file : {folder / text, folder / (text + ".json")}) {
      if (fs::is_regular_file(file, unknown)) return file;
    }
    folders.push_back(folder.string());
  }
  const std::string near = ql::nearest(text, preset_names());
  throw ql::Error(text, "no such file, and no preset has this name",
                  near.empty() ? fmt::format("presets are in {}", fmt::join(folders, ", "))
                               : fmt::format("did you mean '{}'?", near));
}
