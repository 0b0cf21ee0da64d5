// Finds the states of earlier documents, and sets them to zeros before a step.

#include "nn/memory_documents.h"

namespace ql::nn {

MemoryCover memory_cover(const net::Stage& stage) {
  return {stage.stride, (stage.segment - stage.new_states) * stage.stride, stage.new_states, 1};
}

MemoryCover compressed_memory_cover(const net::Geometry& geometry) {
  const std::int64_t of_step = geometry.lengths.segment / geometry.rate;
  return {geometry.rate, geometry.lengths.memory, of_step,
          net::row_of(geometry.pool).has(net::PoolRow::kSpread) ? of_step : 1};
}

at::Tensor document_states(const MemoryCover& cover, const at::Tensor& document_offsets) {
  const std::int64_t tokens = cover.stride * cover.together;
  const at::Tensor covered = (document_offsets - cover.gap).clamp_min(0);
  const at::Tensor covering = at::div(covered + (tokens - 1), tokens, "floor") * cover.together;
  // Each step inside the document adds new_states states, even if they cover only earlier tokens.
  // So a document that begins with a segment is read as a stream of its own, whose first step also
  // computes states from the zeros in its memory.
  const at::Tensor steps = at::div(document_offsets, cover.new_states * cover.stride, "floor");
  return at::maximum(covering, steps * cover.new_states);
}

at::Tensor forgotten_states(const MemoryCover& cover, std::int64_t length, const StepOptions& step,
                            const at::Device& device) {
  if (step.document_offsets.empty() && !step.document_offset_tensor.defined()) return {};
  const at::Tensor document_offsets = step.document_offset_tensor.defined()
                                          ? step.document_offset_tensor
                                          : at::tensor(step.document_offsets);
  const at::Tensor first_kept = (length - document_states(cover, document_offsets)).unsqueeze(1);
  if (!step.document_offset_tensor.defined() && first_kept.max().item<std::int64_t>() <= 0) {
    return {};
  }
  return at::arange(length, document_offsets.options()).lt(first_kept).to(device);
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
