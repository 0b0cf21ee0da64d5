#include "nn/memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace ql::nn {

std::vector<StageMemory> memories_of(const net::Geometry& geometry) {
  std::vector<StageMemory> memories;
  std::size_t number = 0;
  for (std::size_t i = 0; i < geometry.stages.size(); ++i) {
    const net::Stage& stage = geometry.stages[i];
    const std::size_t before = memories.size();
    if (stage.memory > 0) {
      memories.push_back(
          {fmt::format("memory.{}", number), i, stage.memory, net::memory_cover(stage)});
    }
    if (stage.compressed_memory > 0) {
      memories.push_back({fmt::format("compressed_memory.{}", number), i, stage.compressed_memory,
                          net::compressed_memory_cover(geometry)});
    }
    number += memories.size() > before ? 1 : 0;
  }
  return memories;
}

void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch,
                  std::int64_t d_model) {
  const std::vector<StageMemory> memories = memories_of(geometry);
  constexpr const char* kCure = "start the memory anew for these lengths and this batch";
  if (memory.states.size() != memories.size()) {
    throw ConfigError("memory",
                      fmt::format("the network keeps {} memories with these lengths, found {}",
                                  memories.size(), memory.states.size()),
                      kCure);
  }
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const NamedTensor& state = memory.states[i];
    const std::vector<std::int64_t> expected = {batch, memories[i].length, d_model};
    if (!state.tensor.defined() || state.tensor.sizes() != at::IntArrayRef(expected)) {
      const std::string found = state.tensor.defined()
                                    ? fmt::format("{}", fmt::join(state.tensor.sizes(), " x "))
                                    : "nothing";
      throw ConfigError(memories[i].name,
                        fmt::format("expected {}, found {}", fmt::join(expected, " x "), found),
                        kCure);
    }
  }
}

at::Tensor MemoryWalk::join(const at::Tensor& segment, const net::Stage& stage) {
  if (stage.memory == 0) {
    return segment;
  }
  at::Tensor window = at::cat({here().tensor, segment}, 1);
  // concat(memory, segment[:shift]) is the window's first memory + shift states.
  pass(kept(window).narrow(1, stage.shift, stage.memory));
  return window;
}

void MemoryWalk::pass_compressed(const at::Tensor& compressed) {
  const std::int64_t length = current().size(1);
  const at::Tensor all = at::cat({current(), kept(compressed)}, 1);
  pass(all.narrow(1, all.size(1) - length, length));
}

Memory MemoryWalk::of(const net::Stage& stage) const {
  const auto first = memory_.states.begin() + static_cast<std::ptrdiff_t>(next_.states.size());
  return {{first, first + (stage.memory > 0) + (stage.compressed_memory > 0)}};
}

}  // namespace ql::nn
