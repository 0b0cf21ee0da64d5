// The options of a step, and its dropout and droppath from a counter-based generator: every random
// bit is a function of (seed, step, site, element index). So there is no state to save, and any
// number of threads gives the same mask. An update that is tried again with other data, because the
// loss diverged, has the same masks.
//
// On devices other than the CPU the masks come from the device's own generator, which a CUDA graph
// can replay. Training on such a device seeds the generator for every step (seed_generator()), and
// the functions below, except dropout_mask(), do not read seed and step there.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::nn {

class AttentionMap;

// Holds the places [first, end) of a row's segment.
struct Places {
  std::int64_t first = 0, end = 0;
};

// Holds the options of a step. Training needs seed and step: dropout, attention dropout and
// droppath depend only on them, so there is no random state to save.
struct StepOptions {
  bool training = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  // Gradients also flow through memories. This is for measuring context, never for training.
  bool through_memory = false;
  // For every row, this is the number of tokens of its document before the segment. A network with
  // reset_memory_at_documents needs it; for any other it must be empty (nn/memory.h).
  std::vector<std::int64_t> document_offsets = {};
  // This is the row of the complete batch at which the rows of this step begin, if it is a
  // micro-batch: it gets its part of the batch's masks, so that dividing the batch changes no
  // result.
  std::int64_t first_row = 0;
  // A step that must not wait for the host (train/device_step.h) reads the host's choices for each
  // step from these tensors on the model's device. If they are undefined, the host chooses.
  at::Tensor age_tensor = {};     // [rows] int64, used instead of `document_offsets`
  at::Tensor scale_weights = {};  // [scales]: the factors of average_scales()
  // If given, every layer adds to this map the attention of the queries at the `shown` places of
  // every row.
  AttentionMap* attention_map = nullptr;
  std::vector<Places> shown = {};
};

// Names the place in the network where a mask is used. Two places never share random bits.
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

// Returns factors [shape]: 0 with probability `rate` (in steps of 1/65536), else dropout_factor().
// The first dimension is that of the batch's rows, beginning with step.first_row. There may be at
// most 2^35 elements up to the last row. The elements are drawn on the CPU for any device.
// `options` must have a dtype.
at::Tensor dropout_mask(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::TensorOptions& options);

// Returns 1 where dropout_mask() keeps an element, else 0: uint8 [shape], from the same random
// bits.
at::Tensor dropout_kept(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::Device& device = at::kCPU);

// Returns the factor of the kept elements: 65536 / (65536 - dropped levels).
double dropout_factor(double rate);

// Returns `states` times their mask; `states` themselves when not training or rate is 0.
at::Tensor dropout(const at::Tensor& states, double rate, const StepOptions& step,
                   DropoutSite site);

// Does the same for states without rows of the batch, such as the position table: all micro-batches
// get the same mask, whatever step.first_row is.
at::Tensor dropout_of_shared(const at::Tensor& states, double rate, const StepOptions& step,
                             DropoutSite site);

// Sets the state of the generator of `device` to a function of seed, step and first row. The first
// row differs between processes, which would otherwise draw the same masks.
void seed_generator(const at::Device& device, const StepOptions& step);

// Returns the first scale (0-based) that enters the average of `scales` scales: 0 unless training,
// else j-1 with probability rate / (scales - 1) for each j = 2..scales (paper, section 2.3).
std::int64_t droppath_first_scale(std::int64_t scales, double rate, const StepOptions& step);

}  // namespace ql::nn
