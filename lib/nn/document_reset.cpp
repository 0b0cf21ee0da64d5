#include "nn/document_reset.h"

#include <algorithm>

namespace ql::nn {
namespace {

// `mask_of(place, states)` tells which states of a memory are forgotten; undefined: none.
template <typename MaskOf>
Memory forget(const Memory& memory, const net::Geometry& geometry, const MaskOf& mask_of) {
  Memory result = memory;
  const std::vector<MemoryPlace> places = memory_places(geometry);
  for (std::size_t i = 0; i < places.size(); ++i) {
    at::Tensor& states = result.states[i].tensor;
    const at::Tensor forgotten = mask_of(places[i], states);
    if (forgotten.defined()) {
      states = replace_forgotten(states, forgotten, at::zeros({}, states.options()));
    }
  }
  return result;
}

}  // namespace

at::Tensor forgotten_states(const net::MemoryCover& cover, std::int64_t length,
                            const std::vector<std::int64_t>& ages, const at::Device& device) {
  const at::Tensor first_kept = at::empty({static_cast<std::int64_t>(ages.size()), 1}, at::kLong);
  bool all_kept = true;
  for (std::size_t row = 0; row < ages.size(); ++row) {
    const std::int64_t first = length - net::document_states(cover, ages[row]);
    first_kept.data_ptr<std::int64_t>()[row] = first;
    all_kept = all_kept && first <= 0;
  }
  return all_kept ? at::Tensor() : at::arange(length, at::kLong).lt(first_kept).to(device);
}

// net::document_states() for every row.
at::Tensor forgotten_states(const net::MemoryCover& cover, std::int64_t length,
                            const at::Tensor& ages) {
  const std::int64_t tokens = cover.granularity * cover.together;
  const at::Tensor covered = (ages - cover.behind).clamp_min(0);
  const at::Tensor covering = at::div(covered + (tokens - 1), tokens, "floor") * cover.together;
  const at::Tensor steps = at::div(ages, cover.shift * cover.granularity, "floor");
  const at::Tensor kept = at::maximum(covering, steps * cover.shift);
  return at::arange(length, ages.options()).lt((length - kept).unsqueeze(1));
}

at::Tensor replace_forgotten(const at::Tensor& states, const at::Tensor& forgotten,
                             const at::Tensor& zero) {
  at::Tensor mask = forgotten;
  while (mask.dim() < states.dim()) {
    mask = mask.unsqueeze(-1);
  }
  return at::where(mask, zero, states);
}

Memory forget_other_documents(const Memory& memory, const net::Geometry& geometry,
                              const std::vector<std::int64_t>& ages) {
  return forget(memory, geometry, [&](const MemoryPlace& place, const at::Tensor& states) {
    return forgotten_states(place.cover, place.length, ages, states.device());
  });
}

Memory forget_other_documents(const Memory& memory, const net::Geometry& geometry,
                              const at::Tensor& ages) {
  return forget(memory, geometry, [&](const MemoryPlace& place, const at::Tensor&) {
    return forgotten_states(place.cover, place.length, ages);
  });
}

}  // namespace ql::nn
