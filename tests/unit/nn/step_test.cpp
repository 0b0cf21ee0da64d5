// Compares the model with the network on one page, for networks of all the family, with all values
// of their keys, at many lengths.
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "machine/device.h"
#include "net/cost.h"
#include "net/network.h"
#include "unit/drawn_networks.h"
#include "unit/network_on_one_page.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql::test {
namespace {

using net::Network;

constexpr std::int64_t kStreams =
    2;  // More than one stream, so that a mix-up of streams would show.

// Returns the starts of every stream's documents; nothing for a network that does not read them.
std::vector<Starts> draw_starts(const Network& network, std::int64_t segment, std::int64_t length,
                                Draw& draw) {
  std::vector<Starts> all(network.reset_memory_at_documents ? kStreams : 0);
  for (Starts& starts : all) {
    for (std::int64_t token = draw.up_to(1); token < length; ++token) {
      const bool begins_segment = token % segment == 0;
      if (draw.up_to(begins_segment ? 2 : 7) == 0) starts.push_back(token);
    }
  }
  return all;
}

// Holds the input of the model and of the page.
struct NetworkProblem {
  nn::Model model;
  net::Lengths lengths;        // may be others than those of the training
  at::Tensor tokens, targets;  // [kStreams, length]
  std::vector<Starts> starts;

  std::vector<Starts> starts_of(std::int64_t stream) const {
    return starts.empty() ? starts : std::vector<Starts>{starts[static_cast<std::size_t>(stream)]};
  }
};

NetworkProblem make_problem(Network network, std::int64_t segments, Draw& draw) {
  const net::Lengths lengths = network.lengths;
  network.lengths = draw.lengths(network);
  const std::int64_t length = lengths.segment * segments;
  const auto seed = static_cast<std::uint64_t>(draw.up_to(1 << 20));
  return {random_model(network, seed), lengths,
          random_tokens(kStreams, length, network.vocab_size, seed),
          random_tokens(kStreams, length, network.vocab_size, seed + 1),
          draw_starts(network, lengths.segment, length, draw)};
}

NetworkOnOnePage page_of(const nn::Model& model) {
  NetworkOnOnePage page{model.network(), {}};
  for (const nn::NamedTensor& parameter : model.parameters()) {
    page.weights[parameter.name] = parameter.tensor.detach().to(at::kDouble, false, true);
  }
  return page;
}

// Holds the output of the page for one stream. `losses` is [length].
struct Expected {
  at::Tensor states, losses, reconstruction;
};

Expected read_page(NetworkOnOnePage page, const NetworkProblem& problem, std::int64_t stream) {
  const auto list = [&](const at::Tensor& ids) {
    const auto* first = ids.data_ptr<std::int64_t>() + stream * ids.size(1);
    return std::vector<std::int64_t>(first, first + ids.size(1));
  };
  const std::vector<Starts> starts = problem.starts_of(stream);
  const NetworkOnOnePage::Reading reading =
      page.read(problem.lengths, list(problem.tokens), starts.empty() ? Starts() : starts.front());
  std::vector<at::Tensor> losses;
  for (const std::int64_t target : list(problem.targets)) {
    losses.push_back(page.loss(reading.outputs[static_cast<std::int64_t>(losses.size())], target));
  }
  return {reading.outputs, at::stack(losses), reading.reconstruction};
}

// Checks the model step by step, by our kernels and by ATen's operations, and layer by layer.
void check_evaluation(const NetworkProblem& problem, double tolerance) {
  const at::NoGradGuard no_gradient;
  const nn::Model& model = problem.model;
  const net::Lengths& lengths = problem.lengths;
  const NetworkOnOnePage page = page_of(model);
  const at::Tensor states = read_states(model, lengths, problem.tokens, problem.starts);
  const at::Tensor losses = model.losses(states, problem.targets);
  at::Tensor of_operations;
  {
    const machine::OperationsOnly operations;
    of_operations = read_states(model, lengths, problem.tokens, problem.starts);
  }
  for (std::int64_t stream = 0; stream < kStreams; ++stream) {
    const Expected expected = read_page(page, problem, stream);
    CHECK(largest_difference(states[stream], expected.states) < tolerance);
    CHECK(largest_difference(of_operations[stream], expected.states) < tolerance);
    CHECK(largest_difference(losses[stream], expected.losses) < tolerance);
    for (const std::int64_t segments : {1, 3, 100}) {
      const at::Tensor found = read_layer_by_layer(
          model, lengths, problem.tokens.narrow(0, stream, 1), segments, problem.starts_of(stream));
      CHECK(largest_difference(found[0], expected.states) < tolerance);
    }
  }
}

// Makes the page drop what the model drops in a training that begins with the step `first`.
void drop_as(NetworkOnOnePage& page, const nn::StepOptions& first, std::int64_t stream) {
  const Network network = page.network;
  page.dropout = [network, first, stream](const at::Tensor& x, nn::DropoutSite site,
                                          std::int64_t step) {
    nn::StepOptions options = first;
    options.step += static_cast<std::uint64_t>(step);
    if (site.kind == nn::DropoutSite::kDroppath) {
      const std::int64_t left = nn::droppath_first_scale(x.size(0), network.droppath, options);
      return at::arange(x.size(0)).ge(left).to(at::kDouble) / (x.size(0) - left);
    }
    if (site.kind == nn::DropoutSite::kPosition) {  // all rows share it; the farthest comes first
      options.first_row = 0;
      return x * nn::dropout_mask(x.sizes(), network.dropout, options, site, at::kDouble).flip(0);
    }
    const bool probability = site.kind == nn::DropoutSite::kAttentionProbability;
    site.layer = site.kind == nn::DropoutSite::kFinal ? 0 : site.layer;
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.insert(shape.begin(), kStreams);
    return x * nn::dropout_mask(shape, probability ? network.dropatt : network.dropout, options,
                                site, at::kDouble)[stream];
  };
}

// Returns the gradient of a parameter, or zeros for none, and removes it.
at::Tensor take_gradient(const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  parameter.mutable_grad() = at::Tensor();
  return gradient.defined() ? gradient : at::zeros_like(parameter);
}

// Checks losses, auxiliary losses and the gradients of both, by our kernels and by ATen's
// operations.
void check_training(const NetworkProblem& problem, const nn::StepOptions& step) {
  const nn::Model& model = problem.model;
  NetworkOnOnePage page = page_of(model);
  for (auto& [name, weight] : page.weights) weight.requires_grad_();
  std::vector<at::Tensor> losses, reconstructions;
  for (std::int64_t stream = 0; stream < kStreams; ++stream) {
    drop_as(page, step, stream);
    const Expected expected = read_page(page, problem, stream);
    losses.push_back(expected.losses);
    reconstructions.push_back(expected.reconstruction);
  }
  const at::Tensor expected = at::stack(losses);
  const at::Tensor expected_auxiliary = at::stack(reconstructions).mean(0);
  const at::Tensor factors = at::arange(1, expected.numel() + 1, at::kDouble).view_as(expected);
  const bool learns = model.network().learns_compression() && problem.lengths.compressed_memory > 0;
  std::map<std::string, at::Tensor> gradients, auxiliary_gradients;
  (expected * factors).sum().backward();
  for (const auto& [name, weight] : page.weights) gradients[name] = take_gradient(weight);
  if (learns) expected_auxiliary.sum().backward();
  for (const auto& [name, weight] : page.weights) auxiliary_gradients[name] = take_gradient(weight);
  for (const bool kernels : {true, false}) {
    CAPTURE(kernels);
    std::optional<machine::OperationsOnly> operations;
    if (!kernels) operations.emplace();
    const auto check_gradients = [&](const std::map<std::string, at::Tensor>& wanted) {
      for (const nn::NamedTensor& parameter : model.parameters()) {
        CAPTURE(parameter.name);
        const at::Tensor& gradient = wanted.at(parameter.name);
        CHECK(largest_difference(take_gradient(parameter.tensor), gradient) <
              1e-10 * (1 + gradient.abs().max().item<double>()));
      }
    };
    std::vector<at::Tensor> auxiliary;
    const at::Tensor states =
        read_states(model, problem.lengths, problem.tokens, problem.starts, step, &auxiliary);
    const at::Tensor found = model.losses(states, problem.targets);
    CHECK(largest_difference(found, expected) < 1e-10);
    (found * factors).sum().backward();
    check_gradients(gradients);
    REQUIRE(auxiliary.front().defined() == learns);
    if (learns) {
      CHECK(largest_difference(at::stack(auxiliary), expected_auxiliary) < 1e-10);
      at::stack(auxiliary).sum().backward();
      check_gradients(auxiliary_gradients);
    }
  }
}

}  // namespace

TEST_CASE("drawn_networks: are of all kinds") {
  std::map<std::string, int> counts;
  // A kind that is never drawn counts as 0.
  const auto begin_with = [&counts](const auto& names) {
    for (const auto& name : names) counts[name] = 0;
  };
  begin_with(all_names<net::Architecture>());
  begin_with(all_names<net::Encoding>());
  begin_with(all_names<net::Attention>());
  begin_with(all_names<net::Pool>());
  for (const Network& network : drawn_networks(1, 7, 120)) {
    const bool compresses = network.lengths.compressed_memory > 0;
    ++counts[net::to_text(network.architecture)];
    ++counts[net::to_text(network.encoding)];
    ++counts[net::to_text(network.attention)];
    counts[net::to_text(network.pool)] += compresses || network.scales.size() > 1 ? 1 : 0;
    counts["equal usage"] += compresses && network.pool == net::Pool::kMostUsed &&
                             (network.same_length || network.attention_window > 0);
    counts["auto-encoding"] +=
        compresses && network.compression_loss == net::CompressionLoss::kAutoEncoding;
    counts["clamped"] += network.encoding == net::Encoding::kTransformerXl && network.clamp_len > 0;
    counts["same length"] += network.same_length;
    counts["window"] += network.attention_window > 0;
    counts["dilated window"] += !network.attention_dilation.empty();
    counts["clusters"] += !network.cutoffs.empty() && network.div_val > 1;
    counts["clusters of one table"] += !network.cutoffs.empty() && network.div_val == 1;
    counts["query-only pooling"] += network.query_only_pooling;
    counts["learned join"] += network.learned_join;
    counts["widths"] += !network.scale_widths.empty();
    counts["documents"] += network.reset_memory_at_documents;
  }
  for (const auto& [kind, count] : counts) {
    CAPTURE(kind);
    CHECK(count >= 8);
  }
}

TEST_CASE("forward: computes what the page does, step by step and layer by layer") {
  Draw draw(1);
  for (const Network& network : drawn_networks(1, 7, 120)) {
    CAPTURE(net::network_to_json(network).dump());
    const NetworkProblem problem = make_problem(network, 7, draw);
    CHECK(problem.model.parameter_count() == net::cost(network, network.lengths).parameters);
    check_evaluation(problem, 1e-10);
  }
}

TEST_CASE("forward: learns what the page does, with dropout, losses and gradients") {
  Draw draw(2);
  for (Network network : drawn_networks(2, 4, 100)) {
    network.dropout = 0.2;
    network.dropatt = network.attention == net::Attention::kLinear ? 0 : 0.3;
    network.droppath = network.scales.size() > 1 ? 0.5 : 0;
    CAPTURE(net::network_to_json(network).dump());
    nn::StepOptions step{true, 7, static_cast<std::uint64_t>(draw.up_to(1000))};
    step.first_row = draw.up_to(2);  // These rows may be a micro-batch of a larger batch.
    check_training(make_problem(network, 3, draw), step);
  }
}

TEST_CASE("linear_attention: every block of queries is right, also in float32" *
          doctest::test_suite("numeric")) {
  Draw draw(3);
  for (const std::int64_t memory : {0, 1, 100}) {
    for (const std::int64_t segment : {1, 64, 65, 130}) {
      CAPTURE(memory);
      CAPTURE(segment);
      Network network =
          small_network(net::Architecture::kTransformerXl, {1}, 0, {segment, memory, 0});
      network.attention = net::Attention::kLinear;
      const NetworkProblem problem = make_problem(network, 2, draw);
      check_evaluation(problem, 1e-10);
      check_training(problem, {true, 7, 1});
      nn::Model narrow(problem.model.network(), at::kFloat);
      const at::NoGradGuard no_gradient;
      for (std::size_t i = 0; i < narrow.parameters().size(); ++i) {
        at::Tensor parameter = narrow.parameters()[i].tensor;
        parameter.copy_(problem.model.parameters()[i].tensor);
      }
      CHECK(largest_difference(
                read_streams(narrow, problem.lengths, problem.tokens, problem.targets),
                read_streams(problem.model, problem.lengths, problem.tokens, problem.targets)) <
            1e-4);
    }
  }
}

}  // namespace ql::test
