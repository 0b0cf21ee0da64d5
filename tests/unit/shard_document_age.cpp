#include "shard/document_age.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>

using ql::shard::document_age;

TEST_CASE("the age of a document is the way back to its start") {
  const std::vector<std::int64_t> starts{0, 3, 3, 7};
  const std::int64_t expected[] = {0, 1, 2, 0, 1, 2, 3, 0, 1, 2};
  for (std::int64_t position = 0; position < 10; ++position) {
    CHECK(document_age(starts, position) == expected[position]);
  }
}

TEST_CASE("what stands before the first start is a document, too") {
  CHECK(document_age({}, 5) == 5);
  CHECK(document_age({4}, 3) == 3);
  CHECK(document_age({4}, 4) == 0);
}

TEST_CASE("ages in a stream are those in data, whatever is known of the starts ahead") {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::int64_t> starts;
    for (std::int64_t position = static_cast<std::int64_t>(random() % 3); position < 100;
         position += static_cast<std::int64_t>(random() % 20)) {
      starts.push_back(position);
    }
    ql::shard::DocumentAges ages;
    std::size_t told = 0;
    for (std::int64_t position = 0; position < 100;
         position += static_cast<std::int64_t>(random() % 7)) {
      const std::int64_t known = position + static_cast<std::int64_t>(random() % 30);
      for (; told < starts.size() && starts[told] <= known; ++told) ages.put_start(starts[told]);
      CHECK(ages.age(position) == document_age(starts, position));
      const auto next = std::upper_bound(starts.begin(), starts.end(), position);
      const bool is_known = next - starts.begin() < static_cast<std::ptrdiff_t>(told);
      CHECK(ages.next_start() == (is_known ? std::optional(*next) : std::nullopt));
    }
  }
}
