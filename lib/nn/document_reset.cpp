#include "nn/document_reset_internal.h"

namespace ql::nn {

MemoryCover memory_cover(const net::Stage& stage) {
  return {stage.granularity, (stage.segment - stage.shift) * stage.granularity, stage.shift, 1};
}

MemoryCover compressed_memory_cover(const net::Geometry& geometry) {
  const std::int64_t of_step = geometry.lengths.segment / geometry.rate;
  return {geometry.rate, geometry.lengths.memory, of_step,
          net::spreads(geometry.pool) ? of_step : 1};
}

at::Tensor document_states(const MemoryCover& cover, const at::Tensor& ages) {
  const std::int64_t tokens = cover.granularity * cover.together;
  const at::Tensor covered = (ages - cover.behind).clamp_min(0);
  const at::Tensor covering = at::div(covered + (tokens - 1), tokens, "floor") * cover.together;
  // Zeros that a step inside the document computed on, as the first step of a stream does, are the
  // document's own.
  const at::Tensor steps = at::div(ages, cover.shift * cover.granularity, "floor");
  return at::maximum(covering, steps * cover.shift);
}

at::Tensor forgotten_states(const MemoryCover& cover, std::int64_t length, const StepOptions& step,
                            const at::Device& device) {
  if (step.ages.empty() && !step.age_tensor.defined()) return {};
  const at::Tensor ages = step.age_tensor.defined() ? step.age_tensor : at::tensor(step.ages);
  const at::Tensor first_kept = (length - document_states(cover, ages)).unsqueeze(1);
  if (!step.age_tensor.defined() && first_kept.max().item<std::int64_t>() <= 0) return {};
  return at::arange(length, ages.options()).lt(first_kept).to(device);
}

at::Tensor replace_forgotten(const at::Tensor& states, const at::Tensor& forgotten,
                             const at::Tensor& zero) {
  if (!forgotten.defined()) return states;
  at::Tensor mask = forgotten;
  while (mask.dim() < states.dim()) mask = mask.unsqueeze(-1);
  return at::where(mask, zero.defined() ? zero : at::zeros({}, states.options()), states);
}

void forget_other_documents(StageMemory& memory, const net::Stage& stage,
                            const net::Geometry& geometry, const StepOptions& step) {
  const auto forget = [&](at::Tensor& states, const MemoryCover& cover) {
    if (states.defined()) {
      states =
          replace_forgotten(states, forgotten_states(cover, states.size(1), step, states.device()));
    }
  };
  forget(memory.states, memory_cover(stage));
  forget(memory.compressed, compressed_memory_cover(geometry));
}

void forget_other_documents(Memory& memory, const net::Geometry& geometry,
                            const StepOptions& step) {
  for (std::size_t i = 0; i < geometry.stages.size(); ++i) {
    forget_other_documents(memory.stages[i], geometry.stages[i], geometry, step);
  }
}

}  // namespace ql::nn
