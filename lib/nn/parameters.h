// Gives access to the parameters of a network by role and by name, and draws their initial values.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/softmax.h"
#include "net/network.h"

namespace ql::nn {

// Holds a tensor and its name in files.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Holds named tensors that are parts of one tensor, so that one operation can work on all of them.
// Each part begins at a multiple of kAlignment elements, because matrix products on a GPU need
// aligned rows to be fast. Zeros fill the gaps.
struct FlatTensors {
  static constexpr std::int64_t kAlignment = 64;

  at::Tensor all;                  // [elements]
  std::vector<NamedTensor> named;  // contiguous views of `all`, one after another
};

// Makes the tensors, which have the same dtype and device, parts of one tensor: of `all`, or if
// that is undefined, of a new tensor, which gets their values.
FlatTensors make_flat(std::vector<NamedTensor> tensors, at::Tensor all = {});

// Returns the part of `all` that corresponds to `part`, which is a part of a tensor of this size.
at::Tensor part_of(const at::Tensor& all, const at::Tensor& part);

// Parameters holds the parameters of a network by role. Names and shapes are those of the public
// PyTorch Transformer-XL; the weights of linear layers are [outputs, inputs].

struct AttentionParameters {
  at::Tensor qkv_net;      // [3 * n_head * d_head, d_model]: queries, keys, values
  at::Tensor encoding;     // the weight of net::EncodingRow; undefined if there is none
  at::Tensor o_net;        // [d_model, n_head * d_head]
  at::Tensor norm_weight;  // [d_model]
  at::Tensor norm_bias;    // [d_model]
  at::Tensor r_w_bias;     // [n_head, d_head]: u, for content; all layers share it unless untie_r
  at::Tensor r_r_bias;     // [n_head, d_head]: v, for position; some encodings have neither u nor v
};

struct FeedForwardParameters {
  at::Tensor inner_weight;  // [d_inner, d_model]
  at::Tensor inner_bias;    // [d_inner]
  at::Tensor outer_weight;  // [d_model, d_inner]
  at::Tensor outer_bias;    // [d_model]
  at::Tensor norm_weight;   // [d_model]
  at::Tensor norm_bias;     // [d_model]
};

// Holds the convolution that compresses old memories, and the decoder, a transposed convolution
// that only training uses. The tensors of each are undefined unless the network learns it.
struct CompressionParameters {
  at::Tensor weight;          // [d_model, d_model, rate]: outputs, inputs, index in the group
  at::Tensor bias;            // [d_model]
  at::Tensor decoder_weight;  // [d_model, d_model, rate]: inputs, outputs, index in the group
  at::Tensor decoder_bias;    // [d_model]
};

struct LayerParameters {
  AttentionParameters attention;
  FeedForwardParameters feed_forward;
  CompressionParameters compression;
};

struct Parameters {
  // This is the adaptive softmax, with the clusters of the public PyTorch Transformer-XL
  // (net/cost.h). `softmax.weights` are tied: they are also the tables of the embeddings, one table
  // per cluster, or a single one if div_val is 1.
  kernels::SoftmaxWeights softmax;
  std::vector<at::Tensor> embedding_projections;  // [d_model, width] or undefined, one per table
  std::vector<LayerParameters> layers;
  // These lists of linear maps have an entry for every scale. The entry is undefined if the scale
  // does not need the map. A widening [width, previous width] maps the states of the previous scale
  // to the width of this scale. A narrowing [d_model, width] maps a scale's states to d_model,
  // before accumulation averages them.
  std::vector<at::Tensor> widenings;
  std::vector<at::Tensor> narrowings;

  // This has every tensor above once, in a fixed order.
  FlatTensors flat;
};

// Returns zeros that require a gradient, in the dtype and on the device of `options`. If `all` is
// given, the parameters share its memory: it is `flat.all` of such a network's parameters.
Parameters make_parameters(const net::Network& network, const at::TensorOptions& options,
                           const at::Tensor& all = {});

// Draws initial values of the parameters (paper, appendix E, and the public Transformer-XL code).
// Weights, embeddings, u and v are drawn from normal(0, init_std), layer norm weights from
// normal(1, init_std), and the projections between embeddings and d_model from normal(0,
// proj_init_std). Maps between the widths of scales get 1 on the diagonal, else 0. Biases other
// than u and v become 0. Every value is a function of (seed, parameter, index).
void initialise(Parameters& parameters, const net::Network& network, std::uint64_t seed);

}  // namespace ql::nn
