// Compares the states that belong to a document with a walk over all states.
#include "nn/memory_documents.h"
#include "unit/net_networks.h"
#include "unit/torch_doctest.h"

using namespace ql::net;
using namespace ql::net::testing;
using ql::nn::compressed_memory_cover;
using ql::nn::MemoryCover;

namespace {

// Counts, beginning with the newest, the states of a memory that cover a token at or after `start`
// or were computed in a step that began there or later. State q covers the tokens from q *
// stride on.
std::int64_t walk(const Stage& scale, std::int64_t step, std::int64_t start) {
  const std::int64_t tokens = scale.new_states * scale.stride;
  const auto first_of_segment = [&](std::int64_t s) {
    return (s + 1) * scale.new_states - scale.segment;
  };
  std::int64_t count = 0;
  for (std::int64_t q = first_of_segment(step) - 1;; --q) {
    std::int64_t computed = step;  // the step in which it left the segment
    while (first_of_segment(computed) > q) --computed;
    if ((q + 1) * scale.stride - 1 < start && computed * tokens < start) return count;
    ++count;
  }
}

}  // namespace

TEST_CASE("document_states: are the newest ones, as many as a walk counts") {
  const Network networks[] = {xl(2), quadratic({1, 1}, 1), quadratic({1, 1, 1}, 0),
                              quadratic({2, 1}, 1, 3), quadratic({2}, 1)};
  const Lengths lengths[] = {{4, 4, 0},   {4, 12, 0}, {8, 4, 0}, {8, 0, 0},
                             {12, 36, 0}, {9, 9, 0},  {4, 8, 0}};
  int checked = 0;
  for (const Network& network : networks) {
    for (const Lengths& pair : lengths) {
      if (!(nearest_valid_lengths(network, pair) == std::vector<Lengths>{pair})) continue;
      const Geometry geometry = make_geometry(network, pair);
      for (const Stage& scale : geometry.stages) {
        CAPTURE(pair.segment);
        CAPTURE(pair.memory);
        CAPTURE(scale.stride);
        const at::Tensor kept =
            ql::nn::document_states(ql::nn::memory_cover(scale), at::arange(5 * pair.segment));
        for (std::int64_t offset = 0; offset < 5 * pair.segment; ++offset) {
          CAPTURE(offset);
          const std::int64_t first = 100 * pair.segment;
          CHECK(kept[offset].item<std::int64_t>() == walk(scale, 100, first - offset));
          ++checked;
        }
      }
    }
  }
  CHECK(checked > 1000);
}

TEST_CASE("compressed_memory_cover: ends where the memory begins") {
  const Geometry geometry = make_geometry(compressive(2), {4, 6, 8});
  const MemoryCover cover = compressed_memory_cover(geometry);
  // Zeros that steps inside the document compressed belong to it: 2 a step.
  const std::vector<std::int64_t> expected = {0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6};
  CHECK(at::equal(ql::nn::document_states(cover, at::arange(13)), at::tensor(expected)));
  // Without a memory before it, a state counts as soon as it covers one token.
  const MemoryCover next = compressed_memory_cover(make_geometry(compressive(2), {4, 0, 8}));
  const std::vector<std::int64_t> all = {0, 1, 1, 2, 2, 3, 3, 4, 4};
  CHECK(at::equal(ql::nn::document_states(next, at::arange(9)), at::tensor(all)));
}
