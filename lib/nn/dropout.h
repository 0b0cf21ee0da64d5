// Declares the options of a step, and its dropout and droppath. Dropout and droppath use a
// counter-based generator: every random bit is a function of (seed, step, site, element index). So
// no state has to be saved, and any number of threads gives the same mask. An update that is
// repeated with other data after a divergence has the same masks.
//
// On devices other than the CPU, dropout_kept(), dropout() and dropout_of_shared() do not read the
// StepOptions' seed and step: their masks come from the device's own generator, which a CUDA graph
// can replay. Training on such a device seeds that generator for every step (seed_generator()).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::nn {

class AttentionMap;

// Holds a range of places [first, end) in a row's segment; a place is the index of a token.
struct Places {
  std::int64_t first = 0, end = 0;
};

// Holds the options of a step. Training needs seed and step: the random bits of dropout, attention
// dropout and droppath are derived from them, so no random state has to be saved.
struct StepOptions {
  bool training = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  // If true, gradients also flow through memories. This serves to measure context, never to train.
  bool through_memory = false;
  // For every row, this is the number of tokens before the segment that belong to the document of
  // the segment's first token. A network with reset_memory_at_documents needs these numbers (or
  // age_tensor); for other networks there must be none (nn/memory.h).
  std::vector<std::int64_t> document_offsets = {};
  // If this step computes a micro-batch, its rows begin at this row of the complete batch. On the
  // CPU, a micro-batch gets its part of the batch's masks, so that dividing the batch does not
  // change the result.
  std::int64_t first_row = 0;
  // These tensors are on the model's device, for a step that must not wait for the host
  // (train/device_step.h). They hold what the host has chosen for this step. If they are undefined,
  // the step reads document_offsets and computes droppath's choice itself.
  at::Tensor age_tensor = {};     // [rows] int64: document_offsets as a tensor
  at::Tensor scale_weights = {};  // [scales]: the factors of average_scales()
  // If given, every layer adds to this map the attention of those queries whose places are in
  // `shown`, which has one range for each row.
  AttentionMap* attention_map = nullptr;
  std::vector<Places> shown = {};
};

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

// Returns factors [shape]. A factor is 0 with probability `rate`, which is rounded to a multiple of
// 1/65536. All other factors are dropout_factor(). The first dimension has rows of the batch,
// beginning with step.first_row. These rows and all rows before them may have at most 2^35
// elements. The elements are drawn on the CPU for any device. `options` must have a dtype.
at::Tensor dropout_mask(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::TensorOptions& options);

// Returns uint8 [shape]: 1 for a kept element, else 0. For the CPU, the kept elements are those of
// dropout_mask(); another `device` draws from its own generator.
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
