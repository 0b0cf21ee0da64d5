// Memory that is emptied after every N tokens against streams of N tokens, each read separately.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "unit/eval_support.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

std::vector<double> losses_of(const nn::Model& model, const Ids& ids, const Reading& reading) {
  std::vector<double> losses;
  EvaluationOptions options;
  static_cast<Reading&>(options) = reading;
  options.lengths = model.network().lengths;
  options.sink = [&losses](std::int64_t position, const double* values, std::int64_t count) {
    REQUIRE(position == static_cast<std::int64_t>(losses.size()) + 1);
    losses.insert(losses.end(), values, values + count);
  };
  CHECK(evaluate(model, source_from(ids), options).reset == reading.reset);
  return losses;
}

// The last token of a piece has the first one of the next as its target, so the pieces overlap.
std::vector<double> piece_by_piece(const nn::Model& model, const Ids& ids, Reading reading) {
  std::vector<double> losses;
  const std::int64_t step = reading.reset;
  reading.reset = 0;
  for (auto begin = ids.begin(); ids.end() - begin > 1;) {
    const auto end = begin + std::min<std::int64_t>(step + 1, ids.end() - begin);
    const std::vector<double> piece = losses_of(model, Ids(begin, end), reading);
    losses.insert(losses.end(), piece.begin(), piece.end());
    begin = end - 1;
  }
  return losses;
}

}  // namespace

TEST_CASE("evaluate: after a reset a stream is read as if it began there") {
  const net::Network networks[] = {
      test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0}),
      test::small_network(net::Architecture::kTransformerXl, {2}, 0, {3, 5, 0}),
      test::small_network(net::Architecture::kCompressive, {2}, 0, {4, 4, 2}),
      test::small_network(net::Architecture::kVanilla, {2}, 0, {6, 0, 0})};
  for (const net::Network& network : networks) {
    const nn::Model model = test::random_model(network, 3);
    const Ids ids = random_ids(61, network.vocab_size);
    for (const std::int64_t reset : {1, 7, 8, 20, 60, 100}) {
      for (const std::int64_t chunk : {1, 11, 1000}) {
        for (const std::int64_t stride : {0, 2}) {
          if (stride > 0 && network.architecture != net::Architecture::kVanilla) continue;
          CAPTURE(reset);
          CAPTURE(chunk);
          CAPTURE(stride);
          const Reading reading{0, chunk, stride, reset};
          const std::vector<double> found = losses_of(model, ids, reading);
          const std::vector<double> expected = piece_by_piece(model, ids, reading);
          REQUIRE(found.size() == expected.size());
          for (std::size_t i = 0; i < found.size(); ++i) {
            CHECK(std::abs(found[i] - expected[i]) < 1e-9);
          }
        }
      }
    }
  }
}

}  // namespace ql::eval
