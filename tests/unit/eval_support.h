// Makes the token sources that the tests of evaluation read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "eval/evaluate.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql::eval {

using Ids = std::vector<std::int64_t>;

inline Ids random_ids(std::int64_t count, std::int64_t vocab_size) {
  const at::Tensor tokens = test::random_tokens(1, count, vocab_size, 5);
  const auto* data = tokens.data_ptr<std::int64_t>();
  return {data, data + count};
}

// Returns a source that keeps a copy of the ids.
inline TokenSource source_from(const Ids& ids,
                               std::function<const std::vector<std::int64_t>&()> documents = {}) {
  return {"ids", static_cast<std::int64_t>(ids.size()),
          [ids](std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t) {
            REQUIRE(begin >= 0);
            REQUIRE(begin + count <= static_cast<std::int64_t>(ids.size()));
            std::copy_n(ids.begin() + begin, count, out);
          },
          std::move(documents)};
}

}  // namespace ql::eval
