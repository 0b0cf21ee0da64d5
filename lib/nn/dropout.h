// Declares dropout and droppath. They use a counter-based generator: every random bit is a function
// of (seed, step, site, element index). So no state has to be saved, and any number of threads
// gives the same mask. An update that is repeated with other data after a divergence has the same
// masks.
//
// On devices other than the CPU, dropout_kept(), dropout() and dropout_of_shared() do not read the
// StepOptions' seed and step: their masks come from the device's own generator, which a CUDA graph
// can replay. Training on such a device seeds that generator for every step (seed_generator()).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "kernels/dropout_kernel.h"
#include "nn/step_options.h"

namespace ql::nn {

// Names the site in the network where a mask is used. Two sites never share random bits.
struct DropoutSite {
  enum Kind : std::uint32_t {
    kEmbedding,
    kPosition,
    kFinal,
    kDroppath,
    kAttentionProbability,
    kAttentionOutput,
    kInner,
    kFeedForward,
    kKinds
  };
  Kind kind;
  std::int64_t layer = 0;
  std::uint32_t id() const { return static_cast<std::uint32_t>(layer) * kKinds + kind; }
};

// Describes the mask of a tensor of this shape. An element is dropped with probability `rate`,
// which is rounded to a multiple of 1/65536. The first dimension has rows of the batch, beginning
// with step.first_row. Throws ConfigError if these rows and all rows before them have more than
// 2^35 elements.
kernels::DropoutDraw dropout_draw(at::IntArrayRef shape, double rate, const StepOptions& step,
                                  DropoutSite site);

// Returns the factors [shape] of dropout_draw(): 0 or dropout_factor(). They are drawn on the CPU
// for any device. `options` must have a dtype.
at::Tensor dropout_mask(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::TensorOptions& options);

// Returns the elements uint8 [shape] of dropout_draw(): 1 for a kept element, else 0. A `device`
// other than the CPU draws them from its own generator.
at::Tensor dropout_kept(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::Device& device = at::kCPU);

// Returns the factor of the kept elements: 65536 / (65536 - dropped), where `dropped` is the rate
// in steps of 1/65536.
double dropout_factor(double rate);

// Returns `states` times their mask. Outside of training, or if `rate` is 0, returns `states`.
at::Tensor dropout(const at::Tensor& states, double rate, const StepOptions& step,
                   DropoutSite site);

// Computes dropout() of states that do not have the batch's rows, such as the position table. On
// the CPU, step.first_row is not read, so all micro-batches get the same mask.
at::Tensor dropout_of_shared(const at::Tensor& states, double rate, const StepOptions& step,
                             DropoutSite site);

// Sets the state of the generator of `device` to a function of seed, step and first row. The first
// row differs between processes, which would otherwise draw the same masks.
void seed_generator(const at::Device& device, const StepOptions& step);

// Returns the first scale (0-based) that enters the average of `scales` scales (paper,
// section 2.3). In training, this is each of the scales 1 .. scales - 1 with probability rate /
// (scales - 1), and scale 0 with probability 1 - rate. Outside of training, it is always scale 0.
std::int64_t droppath_first_scale(std::int64_t scales, double rate, const StepOptions& step);

}  // namespace ql::nn
