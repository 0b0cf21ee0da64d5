// Dropout and droppath from a counter-based generator: every random bit is a function of (seed,
// step, site, element index). So there is nothing to save, and any number of threads gives the same
// mask.
//
// On other devices than the CPU the masks come from the device's own generator, which a CUDA graph
// can replay. The training there seeds the generator for every step (seed_generator()), and this
// file does not look at seed and step.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::kernels {
struct KeptElements;
}

namespace ql::nn {

class AttentionMap;

// The places [first, end) of a row's segment.
struct Places {
  std::int64_t first = 0, end = 0;
};

// The options of a step. Training needs seed and step: dropout, attention dropout and droppath
// depend on them alone, so there is no random state to save.
struct StepOptions {
  bool training = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  // Gradients also flow through memories. This measures context and never trains.
  bool through_memory = false;
  // The number of tokens of its document before the segment, for every row. A network with
  // reset_memory_at_documents needs it, and no other may have it (nn/document_reset_internal.h).
  std::vector<std::int64_t> ages = {};
  // The row of the whole batch at which the rows of this step begin, if it is a slice of the batch:
  // it gets the whole batch's masks, so that slicing changes no result.
  std::int64_t first_row = 0;
  // A step that must not wait for the host (train/device_step.h) reads from tensors on the model's
  // device what the host chooses anew in every step. Where they are undefined, the host chooses.
  at::Tensor age_tensor = {};     // [rows] int64, in the place of `ages`
  at::Tensor scale_weights = {};  // [scales]: the factors of average_scales()
  // If given, every layer adds its attention to it, that of the queries at the `shown` places of
  // every row.
  AttentionMap* attention_map = nullptr;
  std::vector<Places> shown = {};
};

// The place in the network where a mask is used. Two places never share random numbers.
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

// Factors [shape]: 0 with probability `rate` (in steps of 1/65536), else dropout_factor(). The
// first dimension is that of the batch's rows, from step.first_row on. There may be at most 2^35
// elements up to the last row.
at::Tensor dropout_mask(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::TensorOptions& options);

// 1 where dropout_mask() keeps an element, else 0: uint8 [shape]. Same random bits.
at::Tensor dropout_kept(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::Device& device = at::kCPU);

// The factor of the kept elements: 65536 / (65536 - dropped levels).
double dropout_factor(double rate);

// Draws for the kernels which elements of a tensor of `shape` on the CPU are kept: all of them when
// not training or when rate is 0.
kernels::KeptElements draw_kept(at::IntArrayRef shape, double rate, const StepOptions& step,
                                DropoutSite site);

// `states` times its mask; `states` itself when not training or rate is 0.
at::Tensor dropout(const at::Tensor& states, double rate, const StepOptions& step,
                   DropoutSite site);

// The same for states without rows of the batch, such as the position table: all slices get the
// same mask, whatever step.first_row says.
at::Tensor dropout_of_shared(const at::Tensor& states, double rate, const StepOptions& step,
                             DropoutSite site);

// Sets the state of the generator of `device` to a function of seed, step and first row.
void seed_generator(const at::Device& device, const StepOptions& step);

// The first scale (0-based) that enters the average of `scales` scales: 0 unless training, else
// j-1 with probability rate / (scales - 1) for each j = 2..scales (paper, section 2.3).
std::int64_t droppath_first_scale(std::int64_t scales, double rate, const StepOptions& step);

}  // namespace ql::nn
