#include "nn/document_reset_internal.h"

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
  if (!forgotten.defined()) {
    return states;
  }
  at::Tensor mask = forgotten;
  while (mask.dim() < states.dim()) {
    mask = mask.unsqueeze(-1);
  }
  return at::where(mask, zero.defined() ? zero : at::zeros({}, states.options()), states);
}

Memory forget_other_documents(const Memory& memory, const net::Geometry& geometry,
                              const std::vector<std::int64_t>& ages, const at::Tensor& age_tensor) {
  Memory result = memory;
  const std::vector<StageMemory> memories = memories_of(geometry);
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const StageMemory& kept = memories[i];
    at::Tensor& states = result.states[i].tensor;
    states = replace_forgotten(
        states, age_tensor.defined()
                    ? forgotten_states(kept.cover, kept.length, age_tensor)
                    : forgotten_states(kept.cover, kept.length, ages, states.device()));
  }
  return result;
}

}  // namespace ql::nn
