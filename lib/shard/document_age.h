// Finds where in its document a token stands.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace ql::shard {

// Returns how many tokens of its document stand before token `position`. `starts` are ascending
// positions where documents start; the tokens before the first of them are a document, too.
std::int64_t document_age(const std::vector<std::int64_t>& starts, std::int64_t position);

// Does the same for a stream whose documents are told as they come. It keeps the starts that are
// ahead, however long the stream is.
class DocumentAges {
 public:
  // Says that a document starts at `position`. Positions ascend, and each comes before age() asks
  // for it or for one behind it.
  void put_start(std::int64_t position) { ahead_.push_back(position); }
  // Returns how many tokens of its document stand before token `position`. Positions ascend.
  std::int64_t age(std::int64_t position);
  // Returns the first start behind the last position that age() was asked for, if one is known.
  std::optional<std::int64_t> next_start() const;

 private:
  std::int64_t start_ = 0;  // of the document of the last position
  std::deque<std::int64_t> ahead_;
};

}  // namespace ql::shard
