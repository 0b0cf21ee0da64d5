#include "eval/losses.h"

#include <algorithm>
#include <vector>

namespace ql::eval {
namespace {

// So many logits exist at a time, which bounds the memory of the softmax.
constexpr std::int64_t kLogitsPerBlock = std::int64_t{1} << 23;

}  // namespace

at::Tensor losses_in_blocks(const nn::Model& model, const at::Tensor& states,
                            const at::Tensor& targets) {
  const std::int64_t rows = states.size(0);
  const std::int64_t block =
      std::max<std::int64_t>(1, kLogitsPerBlock / model.network().vocab_size);
  std::vector<at::Tensor> losses;
  for (std::int64_t row = 0; row < rows; row += block) {
    const std::int64_t count = std::min(block, rows - row);
    losses.push_back(model
                         .losses(states.narrow(0, row, count).unsqueeze(0),
                                 targets.narrow(0, row, count).unsqueeze(0).to(states.device()))
                         .flatten());
  }
  return at::cat(losses).to(at::kCPU, at::kDouble).contiguous();
}

void add_losses(std::int64_t position, const std::int64_t* ids, const double* losses,
                std::int64_t count, const EvaluationOptions& options, Evaluation& result) {
  if (const std::int64_t unscored = options.first_target - position; unscored > 0) {
    const std::int64_t skipped = std::min(unscored, count);
    position += skipped;
    ids += skipped;
    losses += skipped;
    count -= skipped;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    result.add(losses[i]);
    if (!options.unknown || ids[i] != static_cast<std::int64_t>(*options.unknown)) {
      result.known.add(losses[i]);
    }
  }
  if (options.sink && count > 0) options.sink(position, losses, count);
}

}  // namespace ql::eval
