// Holds the parameters of a network by role and by name. Names and shapes are those of the public
// PyTorch Transformer-XL; linear layers hold [outputs, inputs].
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "net/network.h"
#include "nn/named_tensor.h"

namespace ql::nn {

struct AttentionParameters {
  at::Tensor qkv_net;      // [3 * n_head * d_head, d_model]: queries, keys, values
  at::Tensor r_net;        // [n_head * d_head, d_model]; transformer-xl alone has it, u and v
  at::Tensor r_emb;        // [clamp_len + 1, n_head, d_head]: row d is distance d; shaw alone
  at::Tensor o_net;        // [d_model, n_head * d_head]
  at::Tensor norm_weight;  // [d_model]
  at::Tensor norm_bias;    // [d_model]
  at::Tensor r_w_bias;     // [n_head, d_head]: u, for content; all layers share it unless untie_r
  at::Tensor r_r_bias;     // [n_head, d_head]: v, for position; likewise
};

struct FeedForwardParameters {
  at::Tensor inner_weight;  // [d_inner, d_model]
  at::Tensor inner_bias;    // [d_inner]
  at::Tensor outer_weight;  // [d_model, d_inner]
  at::Tensor outer_bias;    // [d_model]
  at::Tensor norm_weight;   // [d_model]
  at::Tensor norm_bias;     // [d_model]
};

// The convolution that compresses old memories, and the transposed one that decodes them. Only
// training uses the decoder. Both are undefined unless the network learns them.
struct CompressionParameters {
  at::Tensor weight;          // [d_model, d_model, rate]: outputs, inputs, place in the group
  at::Tensor bias;            // [d_model]
  at::Tensor decoder_weight;  // [d_model, d_model, rate]: inputs, outputs, place in the group
  at::Tensor decoder_bias;    // [d_model]
};

struct LayerParameters {
  AttentionParameters attention;
  FeedForwardParameters feed_forward;
  CompressionParameters compression;
};

struct Parameters {
  // The tables [ids, width], one for each cluster (net/clusters.h), or with div_val 1 one for all.
  // They are tied: the softmax has them as its weights.
  std::vector<at::Tensor> embeddings;
  std::vector<at::Tensor> output_biases;          // [ids], one a table
  std::vector<at::Tensor> embedding_projections;  // [d_model, width] or undefined, one a table
  std::vector<at::Tensor> output_projections;     // likewise, one a cluster
  at::Tensor cluster_weight;                      // [clusters - 1, d_embed]; undefined for one
  at::Tensor cluster_bias;                        // [clusters - 1]
  std::vector<LayerParameters> layers;
  // These have an entry for every scale; it is undefined where there is no map. A widening
  // maps the states of the scale before [width, width before], a narrowing those that are joined
  // [d_model, width].
  std::vector<at::Tensor> widenings;
  std::vector<at::Tensor> narrowings;

  // Every tensor above once, in a fixed order.
  std::vector<NamedTensor> named;
};

// Zeros that require a gradient, in the dtype and on the device of `options`.
Parameters make_parameters(const net::Network& network, const at::TensorOptions& options);

}  // namespace ql::nn
