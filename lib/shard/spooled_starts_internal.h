// Document starts whose number is not known yet. documents.zst states its content's size in its
// first bytes, so the starts wait in a plain file until the last has come. Memory holds one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/random_access_file.h"

namespace ql::shard {

class SpooledStarts {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

  // The file comes to `folder` when the first piece is full. Errors call the folder `shown_folder`.
  SpooledStarts(const std::filesystem::path& folder, const std::string& shown_folder);

  void add(std::int64_t start);
  std::int64_t count() const { return count_; }
  std::size_t bytes_in_memory() const { return piece_.size(); }

  // Hands on all starts in their order, as encode_document_starts() makes them, and removes the
  // file. Nothing can be added after it.
  void take(const std::function<void(std::string_view)>& sink);

 private:
  void write_piece();

  std::filesystem::path path_;
  std::string shown_name_;
  std::string piece_;
  std::optional<NewFile> file_;
  std::int64_t count_ = 0;
};

}  // namespace ql::shard
