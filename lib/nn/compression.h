// Compresses states between scales, averages the scales, and compresses the old memories of the
// Compressive Transformer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"
#include "nn/dropout.h"
#include "nn/layers.h"
#include "nn/parameters.h"

namespace ql::nn {

// Compresses between two scales (paper, section 2.3: f_c): pools `states` [batch, length, d_model]
// with width and stride `rate`. The length must be a multiple of the rate. Returns [batch, length /
// rate, d_model].
at::Tensor compress(const at::Tensor& states, net::Pool pool, std::int64_t rate);

// The accumulation layer up-samples the states of coarse scales causally, and averages them with
// the states of finer scales (paper, section 2.3).

// Repeats the states of one scale, so that each token p of the segment gets the newest state that
// covers no token after p. `states` [batch, output.segment, d_model] are the scale's output, and
// `output` describes them. `previous` [batch, 1, d_model] is the state before `states`. It is not
// read if output.segment > output.new_states. If `previous` is needed but undefined, the first
// stride - 1 tokens get zeros. Returns [batch, output.new_states * output.stride, d_model].
at::Tensor upsample(const at::Tensor& states, const at::Tensor& previous, const net::Stage& output);

// Returns the average of the up-sampled scales without those that droppath drops. If
// step.scale_weights is defined, returns the sum of the scales with these weights instead.
at::Tensor average_scales(const std::vector<at::Tensor>& scales, double droppath,
                          const StepOptions& step);

// Returns droppath's choice of scales as weights, one for each scale: 0, or 1 / (number of kept
// scales).
std::vector<double> droppath_weights(std::int64_t scales, double droppath, const StepOptions& step);

// The second memory of the Compressive Transformer (Rae et al., 2020) has compressed states. It
// gets one compressed state for every `rate` states that are evicted from the memory.

// Compresses the `states` [batch, n, d_model] of one step to [batch, n / c, d_model], where n is a
// multiple of the rate c. The network's pool decides how:
//  - kMax and kMean: pool_groups() (net/network.h) pools c neighbours.
//  - kConvolution: the layer's convolution reads c neighbours.
//  - kDilatedConvolution: the layer's convolution reads the states k, k + n/c, k + 2n/c, ...
//  - kMostUsed: the n / c states with the most `usage` [batch, n] are kept, in their order in time.
//    If two states are equally used, the newer is taken. `usage` is attention_usage()
//    (kernels/attention.h); other pools do not read `usage`.
at::Tensor compress_memories(const net::Network& network, const LayerParameters& parameters,
                             const at::Tensor& states, const at::Tensor& usage);

// Returns the newest states of concat(older, newer), as many as `older` has, in new storage.
at::Tensor newest_states(const at::Tensor& older, const at::Tensor& newer);

struct CompressiveOutput {
  at::Tensor states;             // [batch, segment, d_model]
  at::Tensor compressed_memory;  // for the next step
  at::Tensor reconstruction;     // loss of a learned compression; undefined outside training
};

// Runs the layer that reads the stage `input`. `window` is concat(compressed memory, memory,
// segment), and `states` are the segment. After the layer has run, the oldest input.segment states
// of concat(memory, segment) are evicted, and their compression enters the compressed memory.
CompressiveOutput run_compressive_layer(LayerContext context, const at::Tensor& window,
                                        const at::Tensor& states, const net::Stage& input);

}  // namespace ql::nn
