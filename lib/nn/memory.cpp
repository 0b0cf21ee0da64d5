// Names the tensors of a memory, and sets the states of earlier documents to zeros before a step.

#include "nn/memory.h"

namespace ql::nn {

std::vector<NamedTensor> Memory::named() const {
  std::vector<NamedTensor> tensors;
  int number = 0;
  for (const StageMemory& stage : stages) {
    if (stage.states.defined()) tensors.push_back({fmt::format("memory.{}", number), stage.states});
    if (stage.compressed.defined()) {
      tensors.push_back({fmt::format("compressed_memory.{}", number), stage.compressed});
    }
    number += stage.states.defined() || stage.compressed.defined() ? 1 : 0;
  }
  return tensors;
}

Memory Memory::with(const std::function<at::Tensor(const at::Tensor&)>& change) const {
  const auto changed = [&](const at::Tensor& tensor) {
    return tensor.defined() ? change(tensor) : tensor;
  };
  Memory result;
  for (const StageMemory& stage : stages) {
    const at::Tensor states = changed(stage.states);
    result.stages.push_back({states, changed(stage.compressed)});
  }
  return result;
}

Memory zero_memory(const net::Geometry& geometry, std::int64_t batch,
                   const at::TensorOptions& options) {
  const auto zeros = [&](std::int64_t length, std::int64_t width) {
    return length > 0 ? at::zeros({batch, length, width}, options) : at::Tensor();
  };
  Memory memory;
  for (const net::Stage& stage : geometry.stages) {
    memory.stages.push_back(
        {zeros(stage.memory, stage.width), zeros(stage.compressed_memory, stage.width)});
  }
  return memory;
}

void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch) {
  constexpr const char* kRemedy =
      "start again with an empty memory for these lengths and this batch";
  // Tensors on the device kMeta have shapes but no storage.
  const std::vector<NamedTensor> expected = zero_memory(geometry, batch, at::kMeta).named();
  const std::vector<NamedTensor> found = memory.named();
  if (memory.stages.size() != geometry.stages.size() || found.size() != expected.size()) {
    throw ConfigError("memory",
                      fmt::format("expected {} tensors for the lengths of the call, found {}",
                                  expected.size(), found.size()),
                      kRemedy);
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto sizes = expected[i].tensor.sizes();
    if (found[i].name != expected[i].name || found[i].tensor.sizes() != sizes) {
      throw ConfigError(
          expected[i].name,
          fmt::format("expected the shape {}, found {} of the shape {}", fmt::join(sizes, " x "),
                      found[i].name, fmt::join(found[i].tensor.sizes(), " x ")),
          kRemedy);
    }
  }
}

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
  if (!step.document_offset_tensor.defined() && first_kept.max().item<std::int64_t>() <= 0)
    return {};
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
