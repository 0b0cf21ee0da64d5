// The second memory of the Compressive Transformer (Rae et al., 2020): states that leave the memory
// are compressed, `rate` of them into one.
#pragma once

#include <ATen/ATen.h>

#include "net/network.h"
#include "nn/layers.h"
#include "nn/parameters.h"

namespace ql::nn {

// `states` [batch, n, d_model], n a multiple of the rate -> [batch, n / rate, d_model], by the
// network's pool: maximum, mean, or the layer's convolution.
at::Tensor compress_memories(const net::Network& network, const LayerParameters& parameters,
                             const at::Tensor& states);

// Attention reconstruction: how much a layer's content attention (without positions) over the
// `compressed` states differs from that over the states they were made of, for the queries of the
// layer's input `recent`: the mean square of the difference. The gradient reaches `compressed`
// alone, thus the convolution's weights, never the network.
at::Tensor reconstruction_loss(const LayerContext& context, const at::Tensor& recent,
                               const at::Tensor& states, const at::Tensor& compressed);

}  // namespace ql::nn
