// Tests a token's place in its document.

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "shard/document_starts.h"

using ql::shard::document_offset;

TEST_CASE("document_offset: the distance to the document's start") {
  const std::vector<std::int64_t> starts{0, 3, 3, 7};
  const std::int64_t expected[] = {0, 1, 2, 0, 1, 2, 3, 0, 1, 2};
  for (std::int64_t position = 0; position < 10; ++position) {
    CHECK(document_offset(starts, position) == expected[position]);
  }
}

TEST_CASE("document_offset: the tokens before the first start are a document, too") {
  CHECK(document_offset({}, 5) == 5);
  CHECK(document_offset({4}, 3) == 3);
  CHECK(document_offset({4}, 4) == 0);
}

TEST_CASE("DocumentOffsets: equals document_offset(), however many starts are known ahead") {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::int64_t> starts;
    for (std::int64_t position = static_cast<std::int64_t>(random() % 3); position < 100;
         position += static_cast<std::int64_t>(random() % 20)) {
      starts.push_back(position);
    }
    ql::shard::DocumentOffsets document_offsets;
    std::size_t put = 0;
    for (std::int64_t position = 0; position < 100;
         position += static_cast<std::int64_t>(random() % 7)) {
      const std::int64_t known = position + static_cast<std::int64_t>(random() % 30);
      for (; put < starts.size() && starts[put] <= known; ++put)
        document_offsets.put_start(starts[put]);
      CHECK(document_offsets.offset(position) == document_offset(starts, position));
      const auto next = std::upper_bound(starts.begin(), starts.end(), position);
      const bool is_known = next - starts.begin() < static_cast<std::ptrdiff_t>(put);
      CHECK(document_offsets.next_start() == (is_known ? std::optional(*next) : std::nullopt));
    }
  }
}
