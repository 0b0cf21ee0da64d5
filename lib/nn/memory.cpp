#include "nn/memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace ql::nn {
namespace {

using MakeTensor = std::function<at::Tensor(const std::vector<std::int64_t>& shape)>;

Memory make_memory(const net::Geometry& geometry, std::int64_t batch, const MakeTensor& make) {
  const auto of_length = [&](std::int64_t length, std::int64_t width) {
    return length > 0 ? make({batch, length, width}) : at::Tensor();
  };
  Memory memory;
  for (const net::Stage& stage : geometry.stages) {
    memory.stages.push_back(
        {of_length(stage.memory, stage.width), of_length(stage.compressed_memory, stage.width)});
  }
  return memory;
}

}  // namespace

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
  return make_memory(geometry, batch, [&](const auto& shape) { return at::zeros(shape, options); });
}

void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch) {
  constexpr const char* kCure = "start the memory anew for these lengths and this batch";
  // The tensors have the right shapes but share one number, so they take no memory.
  const at::Tensor one = at::zeros({});
  const std::vector<NamedTensor> expected =
      make_memory(geometry, batch, [&](const auto& shape) { return one.expand(shape); }).named();
  const std::vector<NamedTensor> found = memory.named();
  if (memory.stages.size() != geometry.stages.size() || found.size() != expected.size()) {
    throw ConfigError("memory",
                      fmt::format("the network keeps {} memories with these lengths, found {}",
                                  expected.size(), found.size()),
                      kCure);
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto sizes = expected[i].tensor.sizes();
    if (found[i].name != expected[i].name || found[i].tensor.sizes() != sizes) {
      throw ConfigError(expected[i].name,
                        fmt::format("expected {}, found {} {}", fmt::join(sizes, " x "),
                                    found[i].name, fmt::join(found[i].tensor.sizes(), " x ")),
                        kCure);
    }
  }
}

}  // namespace ql::nn
