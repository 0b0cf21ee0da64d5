// The places of dropout are tested against a Transformer-XL in plain operations, each mask taken
// from dropout_mask().
#include <cmath>
#include <cstdint>
#include <string>

#include "machine/device.h"
#include "nn/layers_internal.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql {
namespace {

constexpr std::int64_t kBatch = 2;

class Oracle {
 public:
  Oracle(const nn::Model& model, const nn::StepOptions& step)
      : model_(model), network_(model.network()), step_(step) {}

  at::Tensor run(const at::Tensor& tokens, const nn::Memory& memory) const {
    at::Tensor states =
        dropped(model_.embed(tokens), network_.dropout, {nn::DropoutSite::kEmbedding});
    for (std::int64_t layer = 0; layer < network_.layers(); ++layer) {
      states = run_layer(layer, memory.stages[static_cast<std::size_t>(layer)].states, states);
    }
    return dropped(states, network_.dropout, {nn::DropoutSite::kFinal});
  }

 private:
  at::Tensor parameter(const std::string& name) const {
    for (const nn::NamedTensor& named : model_.parameters()) {
      if (named.name == name) {
        return named.tensor;
      }
    }
    FAIL("no parameter " << name);
    return {};
  }
  at::Tensor of_layer(std::int64_t layer, const std::string& name) const {
    return parameter("layers." + std::to_string(layer) + "." + name);
  }
  at::Tensor dropped(const at::Tensor& states, double rate, nn::DropoutSite site) const {
    return states * nn::dropout_mask(states.sizes(), rate, step_, site, at::kDouble);
  }
  at::Tensor normalized(const at::Tensor& states, std::int64_t layer,
                        const std::string& part) const {
    return at::layer_norm(states, {network_.d_model}, of_layer(layer, part + ".layer_norm.weight"),
                          of_layer(layer, part + ".layer_norm.bias"));
  }

  // All rows of the batch share the positions, so they share a mask.
  at::Tensor positions(std::int64_t window) const {
    nn::StepOptions shared = step_;
    shared.first_row = 0;
    const at::Tensor table = nn::position_table(network_, window, at::kDouble);
    return table * nn::dropout_mask(table.sizes(), network_.dropout, shared,
                                    {nn::DropoutSite::kPosition}, at::kDouble);
  }

  at::Tensor attend(std::int64_t layer, const at::Tensor& window, std::int64_t segment) const {
    const std::int64_t length = window.size(1), heads = network_.n_head, width = network_.d_head;
    const at::Tensor qkv = at::linear(window, of_layer(layer, "dec_attn.qkv_net.weight"))
                               .view({kBatch, length, 3, heads, width});
    const at::Tensor r = at::linear(positions(length), of_layer(layer, "dec_attn.r_net.weight"))
                             .view({length, heads, width});
    const at::Tensor u = parameter("r_w_bias"), v = parameter("r_r_bias");
    at::Tensor scores = at::full({kBatch, heads, segment, length}, -INFINITY, at::kDouble);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < segment; ++i) {
          const std::int64_t place = length - segment + i;
          const at::Tensor query = qkv[b][place][0][h];
          for (std::int64_t j = 0; j <= place; ++j) {
            // The table's last row is for the distance 0.
            scores[b][h][i][j] = ((query + u[h]).dot(qkv[b][j][1][h]) +
                                  (query + v[h]).dot(r[length - 1 - (place - j)][h])) /
                                 std::sqrt(static_cast<double>(width));
          }
        }
      }
    }
    const at::Tensor weights = dropped(at::softmax(scores, -1), network_.dropatt,
                                       {nn::DropoutSite::kAttentionProbability, layer});
    const at::Tensor sums = at::matmul(weights, qkv.select(2, 2).transpose(1, 2));
    return at::linear(sums.transpose(1, 2).flatten(2), of_layer(layer, "dec_attn.o_net.weight"));
  }

  at::Tensor feed_forward(std::int64_t layer, const at::Tensor& states) const {
    const at::Tensor inner = at::linear(states, of_layer(layer, "pos_ff.CoreNet.0.weight"),
                                        of_layer(layer, "pos_ff.CoreNet.0.bias"))
                                 .relu();
    return at::linear(dropped(inner, network_.dropout, {nn::DropoutSite::kInner, layer}),
                      of_layer(layer, "pos_ff.CoreNet.3.weight"),
                      of_layer(layer, "pos_ff.CoreNet.3.bias"));
  }

  at::Tensor run_layer(std::int64_t layer, const at::Tensor& memory,
                       const at::Tensor& states) const {
    const bool before = network_.pre_lnorm;
    const at::Tensor window = at::cat({memory, states}, 1);
    const at::Tensor attended =
        states + dropped(attend(layer, before ? normalized(window, layer, "dec_attn") : window,
                                states.size(1)),
                         network_.dropout, {nn::DropoutSite::kAttentionOutput, layer});
    const at::Tensor middle = before ? attended : normalized(attended, layer, "dec_attn");
    const at::Tensor result =
        middle + dropped(feed_forward(layer, before ? normalized(middle, layer, "pos_ff") : middle),
                         network_.dropout, {nn::DropoutSite::kFeedForward, layer});
    return before ? result : normalized(result, layer, "pos_ff");
  }

  const nn::Model& model_;
  const net::Network& network_;
  const nn::StepOptions& step_;
};

}  // namespace

TEST_CASE("every place of a network drops by its own mask, in kernels and operations") {
  const at::NoGradGuard no_gradient;
  for (const bool pre_lnorm : {false, true}) {
    net::Network network =
        test::small_network(net::Architecture::kTransformerXl, {2}, 0, {3, 4, 0});
    network.pre_lnorm = pre_lnorm;
    network.dropout = 0.3;
    network.dropatt = 0.4;
    const nn::Model model = test::random_model(network, 4);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    const at::Tensor tokens = test::random_tokens(kBatch, 3, network.vocab_size, 6);
    nn::Memory memory = at_lengths.start_memory(kBatch);
    at::manual_seed(3);
    for (const nn::NamedTensor& state : memory.named()) {
      state.tensor.normal_();
    }
    // Without and with rows of the batch before these.
    for (const std::int64_t first_row : {0, 5}) {
      nn::StepOptions step{true, 8, 9};
      step.first_row = first_row;
      const at::Tensor expected = Oracle(model, step).run(tokens, memory);
      nn::Memory own = memory;
      CHECK(test::largest_difference(at_lengths.forward(tokens, own, step), expected) < 1e-12);
      const machine::OperationsOnly operations;
      own = memory;
      CHECK(test::largest_difference(at_lengths.forward(tokens, own, step), expected) < 1e-12);
    }
  }
}

}  // namespace ql
