// Compares context lengths by gradients with the intervals that lib/net propagates.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "net/context.h"
#include "nn/measure.h"
#include "unit/nn_dependency_cases.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

std::vector<std::int64_t> exact_lengths(const net::Network& network, const net::Lengths& lengths) {
  std::vector<std::int64_t> exact = net::oldest_dependencies(net::make_geometry(network, lengths));
  for (std::size_t position = 0; position < exact.size(); ++position) {
    exact[position] = static_cast<std::int64_t>(position) - exact[position];
  }
  return exact;
}

// Returns the gradient [1, 2 * segment, d_model] of the second segment's last state.
at::Tensor gradient_of_two_steps(const nn::Model& model, const net::Geometry& geometry,
                                 const nn::StepOptions& step) {
  const std::int64_t segment = geometry.lengths.segment;
  const at::Tensor embedded =
      model.embed(test::random_tokens(1, 2 * segment, model.network().vocab_size, 5))
          .detach()
          .requires_grad_();
  const nn::ModelAtLengths at_lengths(model, geometry.lengths);
  nn::Memory memory = at_lengths.start_memory(1);
  at::Tensor states;
  for (std::int64_t start : {std::int64_t{0}, segment}) {
    states = at_lengths.forward_embedded(embedded.narrow(1, start, segment), memory, step);
  }
  states.select(1, segment - 1).sum().backward();
  return embedded.grad();
}

}  // namespace

TEST_CASE("measure_context: measured lengths equal the exact ones, at every position") {
  for (const test::DependencyCase& entry : test::kDependencyCases) {
    for (const bool pre_lnorm : {true, false}) {
      net::Network network = test::network_of(entry);
      network.pre_lnorm = pre_lnorm;
      CAPTURE(net::to_text(entry.architecture));
      CAPTURE(entry.lengths.segment);
      CAPTURE(entry.lengths.memory);
      CAPTURE(entry.scales.size());
      CAPTURE(pre_lnorm);
      const nn::Model model = test::random_model(network, 3);
      // Narrow states: a maximum hides a token more often than in real networks.
      const nn::MeasuredContext measured = nn::measure_context(model, entry.lengths, {6, 7});
      CHECK(measured.lengths == exact_lengths(network, entry.lengths));
      const net::ContextLength exact = net::exact_context(network, entry.lengths);
      CHECK(measured.context().minimum == exact.minimum);
      CHECK(measured.context().maximum == exact.maximum);
      CHECK(measured.streams >= 2);
      CHECK(measured.stream_tokens > exact.maximum + 2 * entry.lengths.segment);
    }
  }
}

TEST_CASE(
    "measure_context: other lengths than in training, a convolution, clusters and mean pooling") {
  net::Network network =
      test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
  network.pool = net::Pool::kMean;
  network.cutoffs = {4, 7};
  network.div_val = 2;
  const nn::Model model = test::random_model(network, 3);
  for (const net::Lengths& lengths : {net::Lengths{2, 10, 0}, net::Lengths{8, 0, 0}}) {
    CHECK(nn::measure_context(model, lengths).lengths == exact_lengths(network, lengths));
  }
  net::Network compressive =
      test::small_network(net::Architecture::kCompressive, {2}, 0, {4, 6, 6});
  compressive.pool = net::Pool::kConvolution;
  const nn::Model learned = test::random_model(compressive, 3);
  CHECK(nn::measure_context(learned, {4, 6, 2}).lengths == exact_lengths(compressive, {4, 6, 2}));
}

TEST_CASE("measure_context: memory reset at documents, absolute encoding, limited windows") {
  net::Network network =
      test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
  network.reset_memory_at_documents = true;
  network.attention_window = 3;
  CHECK(nn::measure_context(test::random_model(network, 3), {4, 8, 0}).lengths ==
        exact_lengths(network, {4, 8, 0}));
  network = test::small_network(net::Architecture::kVanilla, {2}, 0, {7, 0, 0});
  network.encoding = net::Encoding::kAbsolute;
  CHECK(nn::measure_context(test::random_model(network, 3), {7, 0, 0}).lengths ==
        exact_lengths(network, {7, 0, 0}));
}

TEST_CASE("measure_context: a graph larger than any memory is refused") {
  const net::Network network =
      test::small_network(net::Architecture::kTransformerXl, {8}, 0, {4, 4, 0});
  const nn::Model model = test::random_model(network, 3);
  CHECK_THROWS_WITH_AS(nn::measure_context(model, {128, 1 << 20, 0}),
                       doctest::Contains("use --method exact"), ConfigError);
}

TEST_CASE("measure_context: several passes give the same as one") {
  const test::DependencyCase& entry = test::kDependencyCases[0];
  const net::Network network = test::network_of(entry);
  const nn::Model model = test::random_model(network, 3);
  for (const std::int64_t graph_numbers : {std::int64_t{1}, std::int64_t{1} << 18}) {
    CHECK(nn::measure_context(model, entry.lengths, {6, 7, graph_numbers}).lengths ==
          exact_lengths(network, entry.lengths));
  }
}

TEST_CASE("StepOptions: gradients stop at memories unless through_memory is set") {
  for (const test::DependencyCase& entry : test::kDependencyCases) {
    const net::Network network = test::network_of(entry);
    const nn::Model model = test::random_model(network, 3);
    const net::Geometry geometry = net::make_geometry(network, entry.lengths);
    const std::int64_t segment = entry.lengths.segment;
    nn::StepOptions through;
    through.through_memory = true;
    const at::Tensor stopped = gradient_of_two_steps(model, geometry, {});
    CHECK(stopped.narrow(1, 0, segment).abs().max().item<double>() == 0);
    CHECK(stopped.narrow(1, segment, segment).abs().max().item<double>() > 0);
    // Gradients reach the first segment in all networks except those without any memory.
    const at::Tensor flowing = gradient_of_two_steps(model, geometry, through);
    const bool remembers =
        entry.lengths.memory + entry.lengths.compressed_memory > 0 || entry.scales.size() > 1;
    CHECK((flowing.narrow(1, 0, segment).abs().max().item<double>() > 0) ==
          (geometry.recurrent && remembers));
  }
}

TEST_CASE("forward_embedded: embedded tokens equal tokens, and must fit") {
  const net::Network network =
      test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
  const nn::Model model = test::random_model(network, 3);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  const at::Tensor tokens = test::random_tokens(2, 4, network.vocab_size, 5);
  nn::Memory one = at_lengths.start_memory(2), other = one;
  for (int step = 0; step < 3; ++step) {
    CHECK(at::equal(at_lengths.forward(tokens, one, {}),
                    at_lengths.forward_embedded(model.embed(tokens), other, {})));
  }
  const at::Tensor embedded = model.embed(tokens);
  CHECK_THROWS_AS(at_lengths.forward_embedded(embedded.narrow(1, 0, 3), other, {}), ConfigError);
  CHECK_THROWS_AS(at_lengths.forward_embedded(embedded.narrow(2, 0, 3), other, {}), ConfigError);
  CHECK_THROWS_AS(at_lengths.forward_embedded(embedded.select(0, 0), other, {}), ConfigError);
}

}  // namespace ql
