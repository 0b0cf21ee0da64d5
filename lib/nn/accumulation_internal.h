// The accumulation layer: coarse states up-sampled causally and averaged with the finer ones
// (paper, sections 2.2 and 2.3).
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "net/geometry.h"
#include "nn/dropout.h"

namespace ql::nn {

// Repeats the states of one scale so that token p of the segment gets the last state whose newest
// covered token is <= p. `states` [batch, output.segment, d_model] are the scale's `output`;
// `previous` [batch, 1, d_model] is the state before them, undefined when there is none: then the
// first granularity-1 tokens get zeros. It is read only when output.segment == output.shift.
// Returns [batch, output.shift * output.granularity, d_model].
at::Tensor upsample(const at::Tensor& states, const at::Tensor& previous, const net::Stage& output);

// The average of the up-sampled scales, without those that droppath leaves out. step.scale_weights
// decide this if they are defined.
at::Tensor average_scales(const std::vector<at::Tensor>& scales, double droppath,
                          const StepOptions& step);

// The same choice as weights, one for each scale: 0, or 1 / (scales that are left).
std::vector<double> droppath_weights(std::int64_t scales, double droppath, const StepOptions& step);

}  // namespace ql::nn
