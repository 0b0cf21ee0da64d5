// Draws dropout's masks and droppath's choice of scales from a counter-based generator (Philox).

#include "nn/dropout.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "kernels/dropout_kernel.h"

namespace ql::nn {

constexpr double kLevels = 65536;
constexpr std::int64_t kMostElements =
    (std::int64_t{1} << 32) / kernels::kDropoutCalls * kernels::kDropoutGroup;

static std::uint32_t dropped_levels(double rate) {
  return static_cast<std::uint32_t>(
      std::min(kLevels - 1, std::round(std::max(0.0, rate) * kLevels)));
}

at::Tensor dropout_mask(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::TensorOptions& options) {
  return dropout_kept(shape, rate, step, site).to(options).mul_(dropout_factor(rate));
}

kernels::DropoutDraw dropout_draw(at::IntArrayRef shape, double rate, const StepOptions& step,
                                  DropoutSite site) {
  const std::int64_t count = c10::multiply_integers(shape);
  // The elements of this mask begin at this index in the mask of the complete batch.
  const std::int64_t first = count == 0 ? 0 : step.first_row * (count / shape[0]);
  if (first + count > kMostElements) {
    throw ConfigError("dropout", "the mask has more than 2^35 elements", "use a smaller batch");
  }
  return {{step.seed, step.step, site.id()}, first, dropped_levels(rate)};
}

at::Tensor dropout_kept(at::IntArrayRef shape, double rate, const StepOptions& step,
                        DropoutSite site, const at::Device& device) {
  return kernels::draw_kept(dropout_draw(shape, rate, step, site), shape, device);
}

double dropout_factor(double rate) {
  return kernels::DropoutDraw{{}, 0, dropped_levels(rate)}.factor();
}

at::Tensor dropout(const at::Tensor& states, double rate, const StepOptions& step,
                   DropoutSite site) {
  if (!step.training || rate <= 0) return states;
  if (!states.is_cpu()) return at::dropout(states, rate, /*train=*/true);
  return states * dropout_mask(states.sizes(), rate, step, site, states.options());
}

at::Tensor dropout_of_shared(const at::Tensor& states, double rate, const StepOptions& step,
                             DropoutSite site) {
  StepOptions of_every_slice = step;
  of_every_slice.first_row = 0;
  return dropout(states, rate, of_every_slice, site);
}

void seed_generator(const at::Device& device, const StepOptions& step) {
  // In the counter of a mask, the second word is DropoutSite::id(). No network has enough layers
  // for the id 0xFFFFFFFF, so this counter differs from those of all masks.
  const kernels::PhiloxCounter words = kernels::philox(
      {{static_cast<std::uint32_t>(step.first_row), 0xFFFFFFFF,
        static_cast<std::uint32_t>(step.step), static_cast<std::uint32_t>(step.step >> 32)}},
      step.seed);
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(std::uint64_t{words.word[0]} << 32 | words.word[1]);
}

std::int64_t droppath_first_scale(std::int64_t scales, double rate, const StepOptions& step) {
  if (!step.training || rate <= 0 || scales < 2) return 0;
  const kernels::PhiloxCounter words = kernels::philox(
      {{0, DropoutSite{DropoutSite::kDroppath}.id(), static_cast<std::uint32_t>(step.step),
        static_cast<std::uint32_t>(step.step >> 32)}},
      step.seed);
  const double uniform = words.word[0] * 0x1p-32;
  if (uniform >= rate) return 0;
  // With the rate p and S scales, a value in [(j-2) p / (S-1), (j-1) p / (S-1)) drops all scales
  // below j.
  const auto interval = static_cast<std::int64_t>(uniform / rate * static_cast<double>(scales - 1));
  return std::min(interval, scales - 2) + 1;
}

}  // namespace ql::nn
