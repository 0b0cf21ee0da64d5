// Tests the networks of the installed presets: their parameters are counted by the formulas of the
// papers, and small copies of them learn.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "net/cost.h"
#include "net/model_file.h"
#include "nn/model_at_lengths.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

std::vector<std::filesystem::path> presets() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(QL_SHARE "/presets")) {
    found.push_back(entry.path());
  }
  return found;
}

// Returns the words in the vocabulary of the corpus that a preset is named after.
std::int64_t words(const std::string& name) {
  if (name.find("wikitext-103") != std::string::npos) return 267735;
  if (name.find("simplebooks-92") != std::string::npos) return 98304;
  if (name.find("billion") != std::string::npos) return 793471;
  if (name.find("enwik8") != std::string::npos) return 204;
  if (name.find("text8") != std::string::npos) return 27;
  return 11492;
}

// Every layer has four projections of its states, one of their distances, a feed-forward block with
// two biases, and two layer norms. The biases u and v are shared. A learned join has a map for each
// scale.
std::int64_t layers_formula(const net::Network& network) {
  const std::int64_t d = network.d_model, heads = network.n_head * network.d_head;
  const std::int64_t layer = 5 * d * heads + 2 * d * network.d_inner + network.d_inner + d + 4 * d;
  const std::int64_t convolution =
      network.pool == net::Pool::kConvolution ? d * d * network.rate + d : 0;
  const std::int64_t joins =
      network.learned_join ? static_cast<std::int64_t>(network.scales.size()) * d * d : 0;
  return network.layers() * (layer + convolution) + joins + 2 * heads;
}

// Cluster j has embeddings of d / div_val^j elements, projected to d, and a bias for each word. If
// projections are tied, those of the softmax, except the first, are the embeddings'.
std::int64_t vocabulary_formula(const net::Network& network, bool tied) {
  const std::int64_t d = network.d_model;
  std::vector<std::int64_t> ends(network.cutoffs.begin(), network.cutoffs.end());
  ends.push_back(network.vocab_size);
  const auto clusters = static_cast<std::int64_t>(ends.size());
  std::int64_t sum = clusters > 1 ? (clusters - 1) * (d + 1) : 0, begin = 0;
  for (std::int64_t j = 0; j < clusters; ++j) {
    const std::int64_t end = ends[static_cast<std::size_t>(j)];
    const auto width = d / static_cast<std::int64_t>(std::pow(network.div_val, j));
    sum += (end - begin) * (width + 1);
    if (network.div_val > 1) sum += width * d * (j > 0 && tied ? 1 : 2);
    begin = end;
  }
  return sum;
}

}  // namespace

TEST_CASE("Model: a preset has as many parameters as the papers' formulas count") {
  for (const std::filesystem::path& path : presets()) {
    CAPTURE(path.string());
    net::Network network = net::read_preset(path, {}, {}).network;
    network.vocab_size = words(path.filename().string());
    const bool is_billion = network.vocab_size == 793471;
    // kMeta allocates no memory for weights. The largest networks have 500 million.
    const nn::Model model(network, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
    CHECK(model.parameter_count() ==
          layers_formula(network) + vocabulary_formula(network, !is_billion));
    CHECK(net::cost(network, network.lengths).parameters == model.parameter_count());
  }
}

TEST_CASE("Model: a small copy of a preset runs a step, and its loss has gradients everywhere") {
  for (const std::filesystem::path& path : presets()) {
    CAPTURE(path.string());
    net::Network network = net::read_preset(path, {}, {}).network;
    network.d_model = network.d_embed = 8;
    network.n_head = 2;
    network.d_head = 4;
    network.d_inner = 16;
    network.vocab_size = 50;
    for (std::size_t i = 0; i < network.cutoffs.size(); ++i) {
      network.cutoffs[i] = static_cast<std::int64_t>(10 * (i + 1));
    }
    if (network.div_val > 1) network.div_val = 2;
    nn::Model model(network, at::kFloat);
    model.initialise(1);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    nn::Memory memory = at_lengths.start_memory(2);
    // The tokens are from all over the vocabulary, so that every cluster learns.
    const at::Tensor tokens = (at::arange(2 * network.lengths.segment, at::kLong) * 7)
                                  .remainder(network.vocab_size)
                                  .view({2, network.lengths.segment});
    at::Tensor loss;
    for (const std::uint64_t step : {1, 2}) {
      const nn::StepOptions options{true, 1, step};
      at::Tensor reconstruction;
      const at::Tensor states = at_lengths.forward(tokens, memory, options, &reconstruction);
      loss = model.losses(states, tokens).mean();
      if (reconstruction.defined()) loss = loss + reconstruction;
    }
    CHECK(loss.item<double>() > std::log(50) / 2);
    CHECK(loss.item<double>() < std::log(50) * 2);
    loss.backward();
    for (const nn::NamedTensor& parameter : model.parameters()) {
      CAPTURE(parameter.name);
      CHECK(parameter.tensor.grad().defined());
    }
  }
}

}  // namespace ql
