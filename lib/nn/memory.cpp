#include "nn/memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace ql::nn {

std::vector<std::int64_t> memory_lengths(const net::Geometry& geometry) {
  std::vector<std::int64_t> lengths;
  auto add = [&](std::int64_t length) {
    if (length > 0) {
      lengths.push_back(length);
    }
  };
  for (const net::ScaleGeometry& scale : geometry.scales) {
    for (std::int64_t layer = 0; layer < scale.layers; ++layer) {
      add(scale.memory);
    }
    add(scale.output_memory);
  }
  for (std::int64_t layer = 0; layer < geometry.output.layers; ++layer) {
    add(geometry.output.memory);
  }
  return lengths;
}

void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch,
                  std::int64_t d_model) {
  const std::vector<std::int64_t> lengths = memory_lengths(geometry);
  constexpr const char* kCure = "start the memory anew for these lengths and this batch";
  if (memory.states.size() != lengths.size()) {
    throw ConfigError("memory",
                      fmt::format("the network keeps {} memories with these lengths, found {}",
                                  lengths.size(), memory.states.size()),
                      kCure);
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const NamedTensor& state = memory.states[i];
    const std::vector<std::int64_t> expected = {batch, lengths[i], d_model};
    if (!state.tensor.defined() || state.tensor.sizes() != at::IntArrayRef(expected)) {
      const std::string found = state.tensor.defined()
                                    ? fmt::format("{}", fmt::join(state.tensor.sizes(), " x "))
                                    : "nothing";
      throw ConfigError(state.name,
                        fmt::format("expected {}, found {}", fmt::join(expected, " x "), found),
                        kCure);
    }
  }
}

at::Tensor MemoryWalk::join(const at::Tensor& segment, std::int64_t length, std::int64_t shift) {
  if (length == 0) {
    return segment;
  }
  const at::Tensor& memory = memory_.states[next_.states.size()].tensor;
  at::Tensor window = at::cat({memory, segment}, 1);
  // concat(memory, segment[:shift]) is the window's first length + shift states.
  next_.states.push_back(
      {fmt::format("memory.{}", next_.states.size()), window.detach().narrow(1, shift, length)});
  return window;
}

}  // namespace ql::nn
