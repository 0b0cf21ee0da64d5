#include "nn/memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace ql::nn {

std::vector<MemoryPlace> memory_places(const net::Geometry& geometry) {
  std::vector<MemoryPlace> places;
  std::size_t number = 0;
  auto add = [&](const net::ScaleGeometry& scale, std::int64_t length, std::int64_t compressed) {
    if (length > 0) {
      places.push_back({fmt::format("memory.{}", number), length, net::memory_cover(scale)});
    }
    if (compressed > 0) {
      places.push_back({fmt::format("compressed_memory.{}", number), compressed,
                        net::compressed_memory_cover(geometry)});
    }
    number += length > 0 || compressed > 0 ? 1 : 0;
  };
  for (const net::ScaleGeometry& scale : geometry.scales) {
    for (std::int64_t layer = 0; layer < scale.layers; ++layer) {
      add(scale, scale.memory, geometry.compressed_memory);
    }
    add(scale, scale.output_memory, 0);
  }
  for (std::int64_t layer = 0; layer < geometry.output.layers; ++layer) {
    add(geometry.output, geometry.output.memory, 0);
  }
  return places;
}

void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch,
                  std::int64_t d_model) {
  const std::vector<MemoryPlace> places = memory_places(geometry);
  constexpr const char* kCure = "start the memory anew for these lengths and this batch";
  if (memory.states.size() != places.size()) {
    throw ConfigError("memory",
                      fmt::format("the network keeps {} memories with these lengths, found {}",
                                  places.size(), memory.states.size()),
                      kCure);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const NamedTensor& state = memory.states[i];
    const std::vector<std::int64_t> expected = {batch, places[i].length, d_model};
    if (!state.tensor.defined() || state.tensor.sizes() != at::IntArrayRef(expected)) {
      const std::string found = state.tensor.defined()
                                    ? fmt::format("{}", fmt::join(state.tensor.sizes(), " x "))
                                    : "nothing";
      throw ConfigError(places[i].name,
                        fmt::format("expected {}, found {}", fmt::join(expected, " x "), found),
                        kCure);
    }
  }
}

at::Tensor MemoryWalk::join(const at::Tensor& segment, std::int64_t length, std::int64_t shift) {
  if (length == 0) {
    return segment;
  }
  at::Tensor window = at::cat({here().tensor, segment}, 1);
  // concat(memory, segment[:shift]) is the window's first length + shift states.
  next_.states.push_back({here().name, kept(window).narrow(1, shift, length)});
  return window;
}

void MemoryWalk::pass_compressed(const at::Tensor& compressed) {
  const std::int64_t length = current().size(1);
  const at::Tensor all = at::cat({current(), kept(compressed)}, 1);
  pass(all.narrow(1, all.size(1) - length, length));
}

Memory MemoryWalk::following(std::int64_t places) const {
  const auto first = memory_.states.begin() + static_cast<std::ptrdiff_t>(next_.states.size());
  return {{first, first + places}};
}

}  // namespace ql::nn
