#include "base/file.h"

#include <algorithm>

#include "base/error.h"

namespace ql {

std::string read_file(const fs::path& path, std::int64_t limit) {
  InputFile file(path == "-" ? "./-" : path.string());
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::string text;
  std::error_code ignored;
  const std::uintmax_t expected = fs::file_size(path, ignored);
  std::size_t piece = ignored ? kPiece : std::min<std::uintmax_t>(expected + 1, kPiece);
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    const std::size_t got = file.read_fully(text.data() + before, piece);
    text.resize(before + got);
    if (text.size() > static_cast<std::uint64_t>(std::max<std::int64_t>(limit, 0))) {
      throw Error(path.string(), fmt::format("the file is larger than {} bytes", limit),
                  "is it the right file?");
    }
    if (got < piece) return text;
    piece = kPiece;
  }
}

bool is_inside_path(const fs::path& path) {
  if (path.empty() || path.is_absolute() || path.has_root_name()) return false;
  if (path.native().find('\0') != std::string::npos) return false;
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace ql
