#include "nn/document_reset.h"

#include <algorithm>

namespace ql::nn {

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
  Memory result = memory;
  const std::vector<MemoryPlace> places = memory_places(geometry);
  for (std::size_t i = 0; i < places.size(); ++i) {
    at::Tensor& states = result.states[i].tensor;
    const at::Tensor forgotten =
        forgotten_states(places[i].cover, places[i].length, ages, states.device());
    if (forgotten.defined()) {
      states = replace_forgotten(states, forgotten, at::zeros({}, states.options()));
    }
  }
  return result;
}

}  // namespace ql::nn
