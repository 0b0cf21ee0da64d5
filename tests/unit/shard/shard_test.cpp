// Tests ids outside a vocabulary.

#include <doctest/doctest.h>

#include "shard/shard.h"

namespace ql::shard {
namespace {

// Follows the definition.
std::int64_t naive(const std::vector<TokenId>& ids, std::int64_t size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (std::int64_t{ids[i]} >= size) return static_cast<std::int64_t>(i);
  }
  return -1;
}

}  // namespace

TEST_CASE("first_id_outside: the first id outside a vocabulary") {
  for (const std::int64_t size :
       {std::int64_t{1}, std::int64_t{7}, std::int64_t{65536}, std::int64_t{INT32_MAX},
        std::int64_t{1} << 31, std::int64_t{UINT32_MAX}, std::int64_t{1} << 32}) {
    CAPTURE(size);
    CHECK(first_id_outside(nullptr, 0, size) == -1);
    for (const std::size_t count : {1, 3, 4, 5, 33}) {
      const auto last = static_cast<TokenId>(size - 1);
      std::vector<TokenId> ids(count, last);
      CHECK(first_id_outside(ids.data(), count, size) == -1);
      for (std::size_t at = 0; at < count; ++at) {
        for (const std::int64_t id :
             {size, size + 1, std::int64_t{1} << 31, std::int64_t{UINT32_MAX}}) {
          if (id < size || id > UINT32_MAX) continue;
          ids[at] = static_cast<TokenId>(id);
          ids.back() = static_cast<TokenId>(id);
          CHECK(first_id_outside(ids.data(), count, size) == naive(ids, size));
          ids[at] = ids.back() = last;
        }
      }
    }
  }
}

}  // namespace ql::shard
