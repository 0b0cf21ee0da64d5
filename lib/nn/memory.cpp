// Names the tensors of a memory, and checks their shapes.

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

}  // namespace ql::nn
