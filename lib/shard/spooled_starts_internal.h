// Document starts whose number is not known yet. documents.zst states its content's size in its
// first bytes, so the starts wait in a plain file until the last has come. Memory holds one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "shard/new_folder_internal.h"

namespace ql::shard {

class SpooledStarts {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

  // The file comes to `folder`, which must outlive this object, when the first piece is full.
  explicit SpooledStarts(const NewFolder& folder) : folder_(folder) {}

  void add(std::int64_t start);
  std::int64_t count() const { return count_; }
  std::size_t bytes_in_memory() const { return piece_.size(); }

  // Hands on all starts in their order, as encode_document_starts() makes them, and removes the
  // file. Nothing can be added after it.
  void take(const std::function<void(std::string_view)>& sink);

 private:
  void write_piece();

  const NewFolder& folder_;
  std::string piece_;
  std::unique_ptr<NewFile> file_;
  std::int64_t count_ = 0;
};

}  // namespace ql::shard
