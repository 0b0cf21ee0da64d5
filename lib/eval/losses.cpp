#include "eval/losses.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace ql::eval {
namespace {

// So many logits exist at a time, which bounds the memory of the softmax.
constexpr std::int64_t kLogitsPerBlock = std::int64_t{1} << 23;

// Calls use(first, count) for rows that together have so many logits.
void for_blocks(const nn::Model& model, std::int64_t rows,
                const std::function<void(std::int64_t first, std::int64_t count)>& use) {
  const std::int64_t block =
      std::max<std::int64_t>(1, kLogitsPerBlock / model.network().vocab_size);
  for (std::int64_t row = 0; row < rows; row += block) use(row, std::min(block, rows - row));
}

}  // namespace

at::Tensor losses_in_blocks(const nn::Model& model, const at::Tensor& states,
                            const at::Tensor& targets) {
  std::vector<at::Tensor> losses;
  for_blocks(model, states.size(0), [&](std::int64_t first, std::int64_t count) {
    losses.push_back(model
                         .losses(states.narrow(0, first, count).unsqueeze(0),
                                 targets.narrow(0, first, count).unsqueeze(0).to(states.device()))
                         .flatten());
  });
  return at::cat(losses).to(at::kCPU, at::kDouble).contiguous();
}

std::vector<LikelyToken> likeliest_in_blocks(const nn::Model& model, const at::Tensor& states,
                                             std::int64_t top) {
  std::vector<LikelyToken> likeliest;
  if (top == 0) return likeliest;
  likeliest.reserve(static_cast<std::size_t>(states.size(0) * top));
  for_blocks(model, states.size(0), [&](std::int64_t first, std::int64_t count) {
    const auto best =
        at::topk(model.log_probabilities(states.narrow(0, first, count).unsqueeze(0)), top);
    const at::Tensor values = std::get<0>(best).to(at::kCPU, at::kDouble).contiguous();
    const at::Tensor ids = std::get<1>(best).to(at::kCPU).contiguous();
    for (std::int64_t i = 0; i < count * top; ++i) {
      likeliest.push_back({ids.data_ptr<std::int64_t>()[i], values.data_ptr<double>()[i]});
    }
  });
  return likeliest;
}

void add_losses(ScoredTargets targets, const EvaluationOptions& options, Evaluation& result) {
  targets.skip(std::clamp<std::int64_t>(options.first_target - targets.position, 0, targets.count));
  for (std::int64_t i = 0; i < targets.count; ++i) {
    result.add(targets.losses[i]);
    if (!options.unknown || targets.ids[i] != static_cast<std::int64_t>(*options.unknown)) {
      result.known.add(targets.losses[i]);
    }
  }
  if (targets.count == 0) return;
  if (options.sink) options.sink(targets.position, targets.losses, targets.count);
  if (options.target_sink) options.target_sink(targets);
}

}  // namespace ql::eval
