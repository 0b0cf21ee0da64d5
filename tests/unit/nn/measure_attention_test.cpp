// Tests the attention map of networks whose attention is known, because it depends on distance
// alone.
#include <cmath>
#include <vector>

#include "base/error.h"
#include "net/geometry.h"
#include "nn/measure.h"
#include "nn/model_at_lengths.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

// Sets all weights to zero except those of the position term: the score of distance k is v . (r_net
// sinusoids(k)).
nn::Model position_model(const net::Network& network) {
  const at::NoGradGuard no_gradient;
  nn::Model model(network, at::kDouble);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    const bool of_positions =
        parameter.name == "r_r_bias" || parameter.name.find("r_net") != std::string::npos;
    at::Tensor tensor = parameter.tensor;
    if (of_positions) tensor.copy_(at::randn(tensor.sizes(), tensor.options()));
  }
  return model;
}

// Returns the score of a distance in a layer: sines, then cosines, of distance / 10000^(2i/d).
double score(const nn::Model& model, std::int64_t layer, std::int64_t head, std::int64_t distance) {
  const net::Network& network = model.network();
  const at::Tensor r_net =
      model.weights().layers[static_cast<std::size_t>(layer)].attention.encoding.detach();
  at::Tensor v;
  for (const nn::NamedTensor& parameter : model.parameters()) {
    if (parameter.name == "r_r_bias") v = parameter.tensor.detach()[head];
  }
  std::vector<double> sinusoids;
  for (const bool sine : {true, false}) {
    for (std::int64_t i = 0; i < network.d_model; i += 2) {
      const double angle =
          static_cast<double>(distance) /
          std::pow(10000, static_cast<double>(i) / static_cast<double>(network.d_model));
      sinusoids.push_back(sine ? std::sin(angle) : std::cos(angle));
    }
  }
  const at::Tensor position = at::matmul(r_net, at::tensor(sinusoids, at::kDouble))
                                  .view({network.n_head, network.d_head})[head];
  return at::dot(v, position).item<double>() / std::sqrt(static_cast<double>(network.d_head));
}

// Returns the mean over the new states of a segment that see this distance, each with a softmax
// over the keys that it sees.
double expected(const nn::Model& model, const net::Stage& stage, std::int64_t head,
                std::int64_t distance) {
  double sum = 0;
  int queries = 0;
  for (std::int64_t query = stage.segment - stage.new_states; query < stage.segment; ++query) {
    const std::int64_t seen = stage.window() - stage.segment + query + 1;
    if (distance >= seen) continue;
    double all = 0;
    for (std::int64_t k = 0; k < seen; ++k) all += std::exp(score(model, stage.layer, head, k));
    sum += std::exp(score(model, stage.layer, head, distance)) / all;
    ++queries;
  }
  return sum / queries;
}

}  // namespace

TEST_CASE("AttentionMap: has the attention of every layer, head and distance") {
  const net::Network networks[] = {
      test::small_network(net::Architecture::kTransformerXl, {2}, 0, {3, 5, 0}),
      test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0}),
      test::small_network(net::Architecture::kMultiScale, {1, 1}, 1, {4, 0, 0}),
      test::small_network(net::Architecture::kCompressive, {1}, 0, {4, 2, 2})};
  at::manual_seed(1);
  for (const net::Network& network : networks) {
    CAPTURE(net::to_text(network.architecture));
    const nn::Model model = position_model(network);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    nn::AttentionMap map(network, at_lengths.geometry());
    nn::Memory memory = at_lengths.start_memory(1);
    const std::int64_t segments = 5;
    at_lengths.forward_stream(test::random_tokens(segments, network.lengths.segment, 11, 3), memory,
                              {}, &map,
                              std::vector<nn::Places>(segments, {0, network.lengths.segment}));
    std::size_t entries = 0;
    for (const nn::AttentionMap::Distance& distance : map.distances()) {
      CAPTURE(distance.stage->layer);
      CAPTURE(distance.states);
      CHECK(distance.probability ==
            doctest::Approx(expected(model, *distance.stage, distance.head, distance.states)));
      const std::int64_t unseen = std::max<std::int64_t>(
          0, distance.states - (distance.stage->window() - distance.stage->new_states));
      CHECK(distance.queries == segments * (distance.stage->new_states - unseen));
      // The first query of a segment has one state and the memory before the compressed states.
      if (distance.stage->compressed_memory == 0 || distance.states <= distance.stage->memory) {
        CHECK(distance.tokens == distance.states * distance.stage->stride);
      }
      ++entries;
    }
    std::size_t places = 0;
    for (const net::Stage& stage : at_lengths.geometry().stages) {
      if (stage.feeds_layer()) places += static_cast<std::size_t>(stage.window() * network.n_head);
    }
    CHECK(entries == places);
  }
}

TEST_CASE("AttentionMap: a compressed place counts the tokens that it was made from") {
  const net::Network network =
      test::small_network(net::Architecture::kCompressive, {1}, 0, {4, 2, 2});
  const net::Geometry geometry = net::make_geometry(network, network.lengths);
  nn::AttentionMap map(network, geometry);
  const auto tokens = [&map] {
    std::vector<double> all;
    for (const auto& distance : map.distances()) {
      if (distance.head == 0) all.push_back(distance.tokens);
    }
    return all;
  };
  CHECK(tokens() == std::vector<double>{0, 1, 2, 3, 4, 5, 6, 8});
  // The window has two compressed states, two of the memory and four queries. From the first query
  // the newest compressed state is three places and tokens away, the oldest one four places and
  // five tokens; from the second, four and five places, four and six tokens.
  map.add(0, at::full({1, network.n_head, 4, 8}, 0.125), {{0, 2}});
  CHECK(tokens() == std::vector<double>{0, 1, 2, 3, 4.5, 6, 6, 8});
}

TEST_CASE("AttentionMap: linear attention has none") {
  net::Network network = test::small_network(net::Architecture::kTransformerXl, {1}, 0, {3, 5, 0});
  network.attention = net::Attention::kLinear;
  CHECK_THROWS_AS(nn::AttentionMap(network, net::make_geometry(network, network.lengths)),
                  ConfigError);
}

}  // namespace ql
