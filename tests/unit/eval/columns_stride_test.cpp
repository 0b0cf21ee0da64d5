// Sliding windows against a double loop, which reads every window of a stream separately.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "nn/model.h"
#include "unit/eval_support.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

// Returns the loss of ids[p] for every p > 0. Window w begins at token w * stride and scores those
// of its targets that no earlier window has scored.
std::vector<double> double_loop(const nn::Model& model, const net::Lengths& lengths, const Ids& ids,
                                std::int64_t stride) {
  const at::NoGradGuard no_gradient;
  const nn::ModelAtLengths at_lengths(model, lengths);
  const auto size = static_cast<std::int64_t>(ids.size());
  std::vector<double> losses(ids.size());
  std::int64_t next = 1;
  for (std::int64_t begin = 0; next < size; begin += stride) {
    at::Tensor tokens = at::zeros({1, lengths.segment}, at::kLong);
    for (std::int64_t i = 0; i < lengths.segment && begin + i < size; ++i) {
      tokens[0][i] = ids.at(static_cast<std::size_t>(begin + i));
    }
    nn::Memory memory = at_lengths.start_memory(1);
    const at::Tensor states = at_lengths.forward(tokens, memory, {});
    for (; next < size && next <= begin + lengths.segment; ++next) {
      const auto at = static_cast<std::size_t>(next);
      losses.at(at) = model
                          .losses(states.narrow(1, next - 1 - begin, 1),
                                  at::full({1, 1}, ids.at(at), at::kLong))
                          .item<double>();
    }
  }
  return losses;
}

// Returns the losses, and requires that every target comes once, in order.
std::vector<double> slide(const nn::Model& model, const net::Lengths& lengths, const Ids& ids,
                          std::int64_t stride, std::int64_t chunk, Evaluation& evaluation) {
  std::vector<double> losses(1);
  EvaluationOptions options;
  options.lengths = lengths;
  options.chunk = chunk;
  options.stride = stride;
  options.sink = [&losses](std::int64_t position, const double* values, std::int64_t count) {
    REQUIRE(position == static_cast<std::int64_t>(losses.size()));
    losses.insert(losses.end(), values, values + count);
  };
  evaluation = evaluate(model, source_from(ids), options);
  return losses;
}

const net::Network kNetworks[] = {
    test::small_network(net::Architecture::kVanilla, {2}, 0, {6, 0, 0}),
    test::small_network(net::Architecture::kMultiScale, {1, 1}, 1, {8, 0, 0}),
    test::small_network(net::Architecture::kTransformerXl, {2}, 0, {5, 0, 0})};

}  // namespace

TEST_CASE("evaluate: sliding windows score as a double loop over windows does") {
  for (const net::Network& network : kNetworks) {
    const nn::Model model = test::random_model(network, 3);
    const std::int64_t segment = network.lengths.segment;
    for (const std::int64_t stride : {std::int64_t{1}, std::int64_t{3}, segment - 1, segment}) {
      for (const std::int64_t size :
           {std::int64_t{3}, segment, segment + 1, segment + 2, std::int64_t{47}}) {
        const Ids ids = random_ids(size, network.vocab_size);
        const std::vector<double> expected = double_loop(model, network.lengths, ids, stride);
        for (const std::int64_t chunk : {1, 13, 1000}) {
          CAPTURE(stride);
          CAPTURE(size);
          CAPTURE(chunk);
          Evaluation evaluation;
          const std::vector<double> found =
              slide(model, network.lengths, ids, stride, chunk, evaluation);
          REQUIRE(found.size() == expected.size());
          for (std::size_t i = 1; i < found.size(); ++i) {
            CHECK(std::abs(found[i] - expected[i]) < 1e-5);
          }
          CHECK(evaluation.targets == size - 1);
          CHECK(evaluation.stride == stride);
        }
      }
    }
  }
}

TEST_CASE("evaluate: a stride of the segment is the same as no stride") {
  const net::Network& network = kNetworks[1];
  const nn::Model model = test::random_model(network, 3);
  const Ids ids = random_ids(60, network.vocab_size);
  Evaluation with, without;
  CHECK(slide(model, network.lengths, ids, 8, 0, with) ==
        slide(model, network.lengths, ids, 0, 0, without));
}

TEST_CASE("check_stride: impossible strides are refused") {
  const auto check = [](const net::Network& network, std::int64_t stride) {
    check_stride(net::make_geometry(network, network.lengths), stride);
  };
  CHECK_NOTHROW(check(kNetworks[0], 6));
  CHECK_THROWS_WITH_AS(check(kNetworks[0], 7), doctest::Contains("expected 1 to 6"), ConfigError);
  CHECK_THROWS_AS(check(kNetworks[0], -1), ConfigError);
  for (const auto& network :
       {test::small_network(net::Architecture::kTransformerXl, {2}, 0, {4, 4, 0}),
        test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 0, 0}),
        test::small_network(net::Architecture::kCompressive, {2}, 0, {4, 0, 2})}) {
    CHECK_THROWS_WITH_AS(check(network, 1), doctest::Contains("without memory"), ConfigError);
    CHECK_NOTHROW(check(network, 0));
  }
}

}  // namespace ql::eval
