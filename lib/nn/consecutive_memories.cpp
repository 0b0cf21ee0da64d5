#include "nn/consecutive_memories_internal.h"

#include <algorithm>

namespace ql::nn {

at::Tensor memories_before(const at::Tensor& carry, const at::Tensor& entering) {
  const std::int64_t steps = entering.size(0), shift = entering.size(1), length = carry.size(1);
  const at::Tensor stream = at::cat({carry.squeeze(0), entering.flatten(0, 1)});
  return stream.unfold(0, length, shift).narrow(0, 0, steps).movedim(-1, 1);
}

at::Tensor memory_after(const at::Tensor& carry, const at::Tensor& entering) {
  const std::int64_t steps = entering.size(0), shift = entering.size(1), length = carry.size(1);
  const std::int64_t last = std::min(steps, (length + shift - 1) / shift);
  const at::Tensor newest = entering.narrow(0, steps - last, last).flatten(0, 1).unsqueeze(0);
  const at::Tensor stream = at::cat({carry, newest}, 1);
  return stream.narrow(1, stream.size(1) - length, length).clone();
}

}  // namespace ql::nn
