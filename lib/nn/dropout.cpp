#include "nn/dropout.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/philox.h"

namespace ql::nn {
namespace {

// One Philox call gives eight numbers of 16 bits.
constexpr std::int64_t kBlock = 8;
constexpr double kLevels = 65536;

PhiloxCounter random_words(std::int64_t block, const StepOptions& step, std::uint32_t place) {
  return philox({{static_cast<std::uint32_t>(block), place, static_cast<std::uint32_t>(step.step),
                  static_cast<std::uint32_t>(step.step >> 32)}},
                step.seed);
}

template <typename Real>
void fill_mask(Real* mask, std::int64_t size, std::uint32_t dropped, const StepOptions& step,
               std::uint32_t place) {
  const auto kept = static_cast<Real>(kLevels / (kLevels - dropped));
  const std::int64_t blocks = (size + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const PhiloxCounter words = random_words(block, step, place);
      const std::int64_t first = block * kBlock;
      const std::int64_t count = std::min(kBlock, size - first);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t number = (words.word[i / 2] >> (16 * (i % 2))) & 0xFFFF;
        mask[first + i] = number < dropped ? Real(0) : kept;
      }
    }
  });
}

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef shape, double rate, const StepOptions& step, Place place,
                        const at::TensorOptions& options) {
  const bool wide = options.dtype() == at::kDouble;
  at::Tensor mask = at::empty(shape, at::TensorOptions(wide ? at::kDouble : at::kFloat));
  if (mask.numel() > (std::int64_t{1} << 32) * kBlock) {
    throw ConfigError("dropout", "a mask of more than 2^35 elements", "use a smaller batch");
  }
  const auto dropped =
      static_cast<std::uint32_t>(std::min(kLevels - 1, std::round(std::max(0.0, rate) * kLevels)));
  if (wide) {
    fill_mask(mask.data_ptr<double>(), mask.numel(), dropped, step, place.id());
  } else {
    fill_mask(mask.data_ptr<float>(), mask.numel(), dropped, step, place.id());
  }
  return mask.to(options);
}

at::Tensor dropout(const at::Tensor& states, double rate, const StepOptions& step, Place place) {
  if (!step.training || rate <= 0) {
    return states;
  }
  return states * dropout_mask(states.sizes(), rate, step, place, states.options());
}

std::int64_t droppath_first_scale(std::int64_t scales, double rate, const StepOptions& step) {
  if (!step.training || rate <= 0 || scales < 2) {
    return 0;
  }
  const PhiloxCounter words = random_words(0, step, Place{Place::kDroppath}.id());
  const double uniform = words.word[0] * 0x1p-32;
  if (uniform >= rate) {
    return 0;
  }
  // u in [(j-2) p / (S-1), (j-1) p / (S-1)) drops all scales below j.
  const auto interval = static_cast<std::int64_t>(uniform / rate * static_cast<double>(scales - 1));
  return std::min(interval, scales - 2) + 1;
}

}  // namespace ql::nn
