// Tests parameters, operations and memory, counted by hand.

#include <doctest/doctest.h>

#include <algorithm>

#include "base/error.h"
#include "net/cost.h"
#include "unit/net_networks.h"

using namespace ql::net;
using namespace ql::net::testing;

namespace {

Network tiny(Network network) {
  network.vocab_size = 97;
  network.d_model = 24;
  network.n_head = 3;
  network.d_head = 8;
  network.d_inner = 48;
  return network;
}

Stage layer_input(std::int64_t segment, std::int64_t memory) {
  Stage stage;
  stage.segment = segment;
  stage.memory = memory;
  return stage;
}

}  // namespace

TEST_CASE("cost: parameters equal the tensors of weights that other programs wrote") {
  // The number counts the elements of all tensors of 24-wide networks with 3 heads, 48 inner units
  // and 97 words.
  CHECK(cost(tiny(xl(4)), {4, 12, 0}).parameters == 23881);
  CHECK(cost(tiny(quadratic({1, 1, 1}, 1)), {4, 4, 0}).parameters == 23881);
  Network network = tiny(compressive(3));
  CHECK(cost(network, {4, 6, 6}).parameters == 18529);
  network.pool = Pool::kConvolution;
  CHECK(cost(network, {4, 6, 6}).parameters == 22057);
  network.pool = Pool::kDilatedConvolution;
  CHECK(cost(network, {4, 6, 6}).parameters == 22057);
  network.compression_loss = CompressionLoss::kAutoEncoding;  // a decoder of the same size
  CHECK(cost(network, {4, 6, 6}).parameters == 22057 + (22057 - 18529));
  network.compression_loss = CompressionLoss::kAttentionReconstruction;
  network.pool = Pool::kMostUsed;
  CHECK(cost(network, {4, 6, 6}).parameters == 18529);
}

TEST_CASE("cost: parameters: untied biases, no vocabulary, no sizes") {
  Network network = tiny(xl(4));
  const std::int64_t tied = cost(network, {4, 12, 0}).parameters;
  network.untie_r = true;  // u and v of 24 elements for three layers more
  CHECK(cost(network, {4, 12, 0}).parameters == tied + 144);
  network.untie_r = false;
  network.vocab_size = 0;  // removes 97 rows of 24 elements, and 97 biases
  CHECK(cost(network, {4, 12, 0}).parameters == tied - 2425);
  const Cost without_sizes = cost(xl(4), {4, 12, 0});
  CHECK(without_sizes.parameters == 0);
  CHECK(without_sizes.forward_flops_per_token == 0);
  CHECK(without_sizes.memory_states == 48);
}

TEST_CASE("cost: Transformer-QL has as many parameters as a Transformer-XL of the same depth") {
  CHECK(cost(with_sizes(paper_ql()), {4, 12, 0}).parameters ==
        cost(with_sizes(xl(8)), {4, 12, 0}).parameters);
}

TEST_CASE("cost: operations, counted one product at a time") {
  const Network network = tiny(quadratic({1, 2}, 1));
  const Lengths lengths{4, 12, 0};
  // Scale 1 and output have 4 states and 12 in memory; scale 2 has 4 states of two tokens and 12 in
  // memory.
  double operations = 0;
  for (int layer = 0; layer < 4; ++layer) {
    for (int state = 0; state < 4; ++state) {
      operations += 2 * 3 * 24 * 24;                   // queries, keys, values: all heads together
      operations += 2 * 3 * (12 + state + 1) * 3 * 8;  // content, position, values: 3 heads of 8
      operations += 2 * 24 * 24;                       // heads back to the model's width
      operations += 2 * 2 * 24 * 48;                   // the feed-forward layer
    }
  }
  operations += 4 * 2 * 24 * 97;  // the softmax of four tokens
  CHECK(cost(network, lengths).forward_flops_per_token == doctest::Approx(operations / 4));
}

TEST_CASE("cost: operations of a Compressive Transformer, counted one product at a time") {
  for (const std::int64_t compressed : {0, 1, 2, 6}) {
    CAPTURE(compressed);
    // A step compresses four states to two. Only those that a memory has room for need keys.
    const Lengths lengths{4, 6, compressed};
    double operations = 0;
    for (int layer = 0; layer < 3; ++layer) {
      for (int state = 0; state < 4; ++state) {
        operations += 2 * 3 * 24 * 24;  // queries, keys, values
        operations += 2 * 3 * static_cast<double>(compressed + 6 + state + 1) * 3 * 8;
        operations += 2 * 24 * 24 + 2 * 2 * 24 * 48;  // heads, and feed-forward
      }
      for (int state = 0; state < std::min<std::int64_t>(compressed, 2); ++state) {
        operations += 2 * 24 * 24;  // a key
        operations += 2 * 24 * 24;  // a value
      }
    }
    operations += 4 * 2 * 24 * 97;  // the softmax
    Network network = tiny(compressive(3));
    CHECK(cost(network, lengths).forward_flops_per_token == doctest::Approx(operations / 4));
    network.pool = Pool::kMean;
    CHECK(cost(network, lengths).forward_flops_per_token == doctest::Approx(operations / 4));
  }
}

TEST_CASE("cost: operations of projected embeddings and softmaxes") {
  Network network = tiny(xl(1));
  const Cost plain = cost(network, {4, 12, 0});
  const auto more = [&](const Network& other) {
    return cost(other, {4, 12, 0}).forward_flops_per_token - plain.forward_flops_per_token;
  };
  // An embedding of 16 elements becomes a state, a state becomes 16 elements, and each of 97 words
  // multiplies 16 elements instead of 24.
  network.d_embed = 16;
  const double projected = 2 * 16 * 24 + 2 * 24 * 16 + 2 * 97 * (16 - 24);
  CHECK(more(network) == doctest::Approx(projected));
  // Weights and inputs of all these products have gradients.
  CHECK(cost(network, {4, 12, 0}).training_flops_per_token - plain.training_flops_per_token ==
        doctest::Approx(3 * projected));
  // The first cluster has 40 words of 24 elements, and a column for the other cluster.
  network.d_embed = 0;
  network.cutoffs = {40};
  network.div_val = 2;
  CHECK(more(network) == doctest::Approx(2 * 2 * 24 * 24 + 2 * (40 + 1 - 97) * 24));
  network.proj_same_dim = false;
  CHECK(more(network) == doctest::Approx(2 * (40 + 1 - 97) * 24));
  network.d_embed = 16;
  network.vocab_size = 0;
  CHECK(more(network) == doctest::Approx(-2 * 97 * 24));
}

TEST_CASE("cost: operations and parameters of the remedies for narrow networks") {
  const Lengths lengths{4, 12, 0};
  const Network plain = tiny(quadratic({1, 2}, 1));
  const Cost before = cost(plain, lengths);
  Network pooled = plain;
  pooled.query_only_pooling = true;
  CHECK(cost(pooled, lengths).parameters == before.parameters);
  CHECK(cost(pooled, lengths).memory_numbers == before.memory_numbers);
  // Scale 2's first layer has keys and values of 8 finer states instead of 4, and queries at 8
  // places. The 2 pooled states that enter its memory in a step were queries only, and also need
  // keys and values.
  double more = (8 - 4 + 2) * 2 * 2 * 24 * 24;
  for (int place = 0; place < 8; ++place) more += 2 * 3 * (12 + place + 1) * 3 * 8;
  for (int state = 0; state < 4; ++state) more -= 2 * 3 * (12 + state + 1) * 3 * 8;
  CHECK(cost(pooled, lengths).forward_flops_per_token - before.forward_flops_per_token ==
        doctest::Approx(more / 4));
  // Training computes keys and values of the complete memory in every step, with any pooling.
  const double of_entering = 2 * 2 * 2 * 24 * 24;
  CHECK(cost(pooled, lengths).training_flops_per_token - before.training_flops_per_token ==
        doctest::Approx(3 * (more - of_entering) / 4));

  Network wide = plain;
  wide.scale_widths = {24, 36};
  // Each of two layers has queries, keys, values, positions, heads; inner states and biases; norms.
  // There are two maps.
  const std::int64_t in_layer =
      5 * 24 * 12 + 2 * (36 * 72 - 24 * 48) + (72 - 48) + (36 - 24) + 4 * (36 - 24);
  CHECK(cost(wide, lengths).parameters ==
        before.parameters + 2 * in_layer + std::int64_t{2} * 24 * 36);
  CHECK(cost(wide, lengths).memory_states == before.memory_states);
  CHECK(cost(wide, lengths).memory_numbers - before.memory_numbers == 2 * 12 * 12);
  double widened = 2 * 4 * (2 * 4 * 24 * 12 + 2 * 2 * (36 * 72 - 24 * 48));
  widened += 2 * 2 * 4 * 24 * 36;  // the maps of pooled and of joined states
  CHECK(cost(wide, lengths).forward_flops_per_token - before.forward_flops_per_token ==
        doctest::Approx(widened / 4));

  Network joined = plain;
  joined.learned_join = true;
  CHECK(cost(joined, lengths).parameters == before.parameters + std::int64_t{2} * 24 * 24);
  CHECK(cost(joined, lengths).memory_numbers == before.memory_numbers);
  // Four fine states are mapped with the newest of their memory, and four coarse ones, whose memory
  // is not read: older ones were computed again.
  CHECK(cost(joined, lengths).forward_flops_per_token - before.forward_flops_per_token ==
        doctest::Approx(2 * (5 + 4) * 24 * 24 / 4.0));
}

TEST_CASE(
    "cost: operations of query-only pooling without a memory of scale 1, and with wider scales") {
  Network network = tiny(quadratic({1, 2}, 1));
  const double before = cost(network, {4, 0, 0}).forward_flops_per_token;
  network.query_only_pooling = true;
  // Scale 2 has 2 states, made of 4, and a memory of 2, which both of them enter.
  double more = (4 - 2 + 2) * 2 * 2 * 24 * 24;
  for (int place = 0; place < 4; ++place) more += 2 * 3 * (2 + place + 1) * 3 * 8;
  for (int state = 0; state < 2; ++state) more -= 2 * 3 * (2 + state + 1) * 3 * 8;
  CHECK(cost(network, {4, 0, 0}).forward_flops_per_token - before == doctest::Approx(more / 4));

  Network wide = tiny(quadratic({1, 2}, 1));
  wide.scale_widths = {24, 36};
  const double without = cost(wide, {4, 12, 0}).forward_flops_per_token;
  wide.query_only_pooling = true;
  // The products are those of one width, except that keys and values have 36 inputs, and that the
  // map widens 8 finer states, too.
  more = (8 - 4 + 2) * 2 * 2 * 36 * 24 + 2 * 8 * 24 * 36;
  for (int place = 0; place < 8; ++place) more += 2 * 3 * (12 + place + 1) * 3 * 8;
  for (int state = 0; state < 4; ++state) more -= 2 * 3 * (12 + state + 1) * 3 * 8;
  CHECK(cost(wide, {4, 12, 0}).forward_flops_per_token - without == doctest::Approx(more / 4));
}

TEST_CASE("cost: operations of training, counted one product at a time") {
  const Network network = tiny(quadratic({1, 2}, 1));
  const Lengths lengths{4, 12, 0};
  double operations = 3 * 4 * cost(network, lengths).forward_flops_per_token;
  for (int layer = 0; layer < 4; ++layer) {
    for (int state = 0; state < 12; ++state) {
      operations += 2 * 2 * 24 * 24;  // keys and values of the memory, computed again
      operations += 2 * 2 * 24 * 24;  // the gradient of their weights
    }
  }
  CHECK(cost(network, lengths).training_flops_per_token == doctest::Approx(operations / 4));
  // A convolution acts on memories, so its input has no gradient.
  Network other = tiny(compressive(1));
  const double without = cost(other, {4, 6, 6}).training_flops_per_token;
  other.pool = Pool::kConvolution;
  CHECK(cost(other, {4, 6, 6}).training_flops_per_token - without ==
        doctest::Approx(2 * 2.0 * 2 * 2 * 24 * 24 / 4));
}

TEST_CASE("cost: a Compressive Transformer has longer attention and a convolution") {
  Network network = tiny(compressive(1));
  const double without = cost(network, {4, 6, 0}).forward_flops_per_token;
  const double with = cost(network, {4, 6, 6}).forward_flops_per_token;
  // Two new compressed states a step have keys and values.
  const double new_keys = 2.0 * 2 * 2 * 24 * 24 / 4;
  CHECK(with - without == doctest::Approx(2 * 3 * 6 * 24 + new_keys));
  // Training counts these with the memory: 6 states more, whose weights have a gradient, too.
  CHECK(cost(network, {4, 6, 6}).training_flops_per_token -
            cost(network, {4, 6, 0}).training_flops_per_token ==
        doctest::Approx(3 * 2 * 3 * 6 * 24 + 2.0 * 4 * 6 * 24 * 24 / 4));
  network.pool = Pool::kConvolution;
  CHECK(cost(network, {4, 6, 0}).forward_flops_per_token == without);  // nothing is compressed
  // Four states a step become two, each from 2 x 24 elements to 24: half of that per token.
  CHECK(cost(network, {4, 6, 6}).forward_flops_per_token - with ==
        doctest::Approx(2.0 * 2 * 2 * 24 * 24 / 4));
  const double convolution = cost(network, {4, 6, 6}).forward_flops_per_token;
  network.pool = Pool::kDilatedConvolution;
  CHECK(cost(network, {4, 6, 6}).forward_flops_per_token == convolution);
  network.compression_loss = CompressionLoss::kAutoEncoding;  // the decoder only runs in training
  CHECK(cost(network, {4, 6, 6}).forward_flops_per_token == convolution);
  network.compression_loss = CompressionLoss::kAttentionReconstruction;
  network.pool = Pool::kMostUsed;  // states that had keys and values in their segment
  CHECK(cost(network, {4, 6, 6}).forward_flops_per_token == doctest::Approx(with - new_keys));
}

TEST_CASE("cost: operations where queries see few keys, or where attention is linear") {
  Network network = tiny(xl(1));
  const double full = cost(network, {4, 6, 0}).forward_flops_per_token;
  const auto less = [&](const Network& other) {
    return (full - cost(other, {4, 6, 0}).forward_flops_per_token) * 4 / (2 * 3 * 24);
  };
  // The queries see 7, 8, 9 and 10 keys; with a window of 8 two of them lose 1 and 2 of them.
  network.attention_window = 8;
  CHECK(less(network) == doctest::Approx(3));
  // Two heads see every third key, the last one every fifth: of 7, 8, 9 and 10 keys these are 3, 3,
  // 3 and 4, and 2 each.
  network.attention_window = 5;
  network.attention_dilation = {3, 3, 5};
  CHECK(less(network) == doctest::Approx(34 - (2 * (3 + 3 + 3 + 4) + 4 * 2) / 3.0));
  network.attention_dilation = {};
  network.attention_window = 0;
  network.same_length = true;
  CHECK(less(network) == doctest::Approx(34 - 4 * 6));
  network.same_length = false;
  network.attention = Attention::kLinear;
  // 10 states add their keys times values, and 4 queries read the sum: 24 x 8 products each.
  CHECK(cost(network, {4, 6, 0}).forward_flops_per_token - full ==
        doctest::Approx(2.0 * (14 * 24 * 8 - 34 * 3 * 24) / 4));
}

TEST_CASE("cost: other encodings have other parameters and products") {
  Network network = tiny(xl(4));
  const std::int64_t usual = cost(network, {4, 12, 0}).parameters;
  const double operations = cost(network, {4, 12, 0}).forward_flops_per_token;
  network.encoding = Encoding::kShaw;
  network.clamp_len = 9;
  // The network has no u, v and four r_net, but ten vectors in each of four layers.
  CHECK(cost(network, {4, 12, 0}).parameters == usual - 48 - 4 * 24 * 24 + 4 * 10 * 24);
  CHECK(cost(network, {4, 12, 0}).forward_flops_per_token == operations);
  network.encoding = Encoding::kAbsolute;
  CHECK(cost(network, {4, 12, 0}).parameters == usual - 48 - 4 * 24 * 24);
  // The ten pairs of a layer have no product for the distance.
  network = tiny(vanilla(4));
  const double relative = cost(network, {4, 0, 0}).forward_flops_per_token;
  network.encoding = Encoding::kAbsolute;
  CHECK(relative - cost(network, {4, 0, 0}).forward_flops_per_token ==
        doctest::Approx(4 * 2 * 10 * 3 * 8 / 4));
}

TEST_CASE("cost: memory states of a stream") {
  // The inputs of 3 + 3 + 2 layers and the output of scale 1 have 12 states each.
  CHECK(cost(paper_ql(), {4, 12, 0}).memory_states == 9 * 12);
  CHECK(cost(xl(8), {4, 12, 0}).memory_states == 8 * 12);
  CHECK(cost(compressive(8), {4, 6, 6}).memory_states == 8 * 12);
  CHECK(cost(multi_scale({3, 3}, 2), {16, 0, 0}).memory_states == 0);
  CHECK(cost(vanilla(8), {16, 0, 0}).memory_states == 0);
  // Scale 1 keeps nothing; scale 2 keeps its two inputs of 8 states and one state of its output.
  CHECK(cost(quadratic({2, 2}, 2), {16, 0, 0}).memory_states == 17);
}

TEST_CASE("cost: the largest sizes do not overflow") {
  Network network = compressive(kMaxLayers, kMaxRate);
  network.pool = Pool::kDilatedConvolution;
  network.compression_loss = CompressionLoss::kAutoEncoding;
  network.vocab_size = kMaxVocabulary;
  network.d_model = kMaxWidth;
  network.n_head = 1;
  network.d_head = kMaxWidth;
  network.d_inner = kMaxWidth;
  network.untie_r = true;
  const Cost most = cost(network, {kMaxLength, kMaxLength, kMaxLength});
  const double width = static_cast<double>(kMaxWidth);
  CHECK(static_cast<double>(most.parameters) > 2.0 * kMaxLayers * width * width * kMaxRate);
  CHECK(most.memory_states == kMaxLayers * 2 * kMaxLength);
  CHECK(most.forward_flops_per_token > 0);
  network.n_head = kMaxWidth;
  network.d_head = 1;
  CHECK(attention_cost(network, layer_input(kMaxLength, 2 * kMaxLength)).held ==
        3 * width * static_cast<double>(kMaxLength) * static_cast<double>(kMaxLength));
}

TEST_CASE("cost: lengths are checked") {
  CHECK_THROWS_AS(cost(paper_ql(), {3, 12, 0}), ql::ConfigError);
}

TEST_CASE(
    "attention_cost: linear attention holds the scores of its blocks, softmax those of all pairs") {
  Network network;
  network.n_head = 3;
  const auto scores = [&](std::int64_t segment, std::int64_t window) {
    const double held = attention_cost(network, layer_input(segment, window - segment)).held;
    // Linear attention also holds features of the window's keys, and values.
    const bool linear = network.attention == Attention::kLinear;
    return held -
           (linear ? 3.0 * static_cast<double>(window * network.n_head * network.d_head) : 0);
  };
  CHECK(scores(100, 512) == 3 * 100 * 512);
  network.attention = Attention::kLinear;
  CHECK(scores(100, 500) == 3 * 100 * kLinearBlock);
  CHECK(scores(100, 50000) == 3 * 100 * kLinearBlock);
  CHECK(scores(10, 500) == 3 * 10 * 10);
}
