// The second memory of the Compressive Transformer (Rae et al., 2020): states that leave the memory
// are compressed, `rate` of them into one.
#pragma once

#include <ATen/ATen.h>

#include "kernels/window_projection.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn/layers_internal.h"
#include "nn/parameters.h"

namespace ql::nn {

// The `states` [batch, n, d_model] of one step, n a multiple of the rate c -> [batch, n / c,
// d_model], by the network's pool:
//   maximum, mean, or the layer's convolution of c neighbours;
//   the layer's convolution dilated by n / c: of the states k, k + n/c, k + 2n/c, ...;
//   the n / c states with the most `usage` [batch, n] (kernels/attention.h), in their order in
//   time; the newer of two that are equal. Other pools do not look at `usage`.
at::Tensor compress_memories(const net::Network& network, const LayerParameters& parameters,
                             const at::Tensor& states, const at::Tensor& usage);

// The loss by which a layer learns its compression. `states` have no gradient, and `compressed` is
// what compress_memories() made of them. The loss is the mean square of a difference. Attention
// reconstruction compares the layer's content attention (without positions) over `compressed` with
// that over `states`. `projected` has the layer's queries, and its keys and values of `states`.
// Auto-encoding compares `states` with what the layer's decoder makes of `compressed`. The gradient
// reaches `compressed`, thus the convolution's weights, and the decoder's, never the network.
at::Tensor compression_loss(const LayerContext& context,
                            const kernels::QueriesKeysValues& projected, const at::Tensor& states,
                            const at::Tensor& compressed);

struct CompressiveOutput {
  at::Tensor states;             // [batch, segment, d_model]
  at::Tensor compressed_memory;  // the one that the next step reads
  at::Tensor reconstruction;  // compression_loss(); undefined unless the layer learns in training
};

// Runs the layer of the stage `input` over the `window`, concat(compressed memory, memory,
// segment), whose last states are `states`. Its oldest `segment` states behind the compressed
// memory leave after this step and enter the compressed memory.
CompressiveOutput run_compressive_layer(LayerContext context, const at::Tensor& window,
                                        const at::Tensor& states, const net::Stage& input,
                                        const at::Tensor& positions);

}  // namespace ql::nn
