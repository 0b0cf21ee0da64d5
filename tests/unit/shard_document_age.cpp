#include "shard/document_age.h"

#include <doctest/doctest.h>

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
