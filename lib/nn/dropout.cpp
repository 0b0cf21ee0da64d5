#include "nn/dropout.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/philox.h"
#include "nn/vector.h"

namespace ql::nn {
namespace {

// One Philox call gives eight numbers of 16 bits. Sixteen calls side by side fill a group: number i
// of call k is the group's element 16 i + k, so that both can be vectors.
constexpr std::int64_t kCalls = 16;
constexpr std::int64_t kGroup = 8 * kCalls;
constexpr std::int64_t kGroupsPerTask = 256;
constexpr double kLevels = 65536;

// Fills a group of factors: 0 where the number is below `dropped`, else `kept`.
template <typename Real>
QL_VECTOR_BODY void fill_group_body(Real* mask, std::uint32_t first_call, std::uint32_t place,
                                    std::uint64_t step, std::uint64_t seed, std::int32_t dropped,
                                    Real kept) {
  std::uint32_t words[4][kCalls];
  for (std::uint32_t k = 0; k < kCalls; ++k) {
    words[0][k] = first_call + k;
    words[1][k] = place;
    words[2][k] = static_cast<std::uint32_t>(step);
    words[3][k] = static_cast<std::uint32_t>(step >> 32);
  }
  PhiloxKey key(seed);
  for (int round = 0; round < kPhiloxRounds; ++round, key.advance()) {
    for (std::int64_t k = 0; k < kCalls; ++k) {
      philox_round(words[0][k], words[1][k], words[2][k], words[3][k], key);
    }
  }
  for (std::int64_t word = 0; word < 4; ++word) {
    for (std::int64_t k = 0; k < kCalls; ++k) {
      const auto low = static_cast<std::int32_t>(words[word][k] & 0xFFFF);
      const auto high = static_cast<std::int32_t>(words[word][k] >> 16);
      mask[2 * word * kCalls + k] = low < dropped ? Real(0) : kept;
      mask[(2 * word + 1) * kCalls + k] = high < dropped ? Real(0) : kept;
    }
  }
}
QL_VECTOR_KERNEL(fill_group)

template <typename Real>
void fill_mask(Real* mask, std::int64_t size, std::int32_t dropped, const StepOptions& step,
               std::uint32_t place) {
  const auto kept = static_cast<Real>(kLevels / (kLevels - dropped));
  const std::int64_t groups = (size + kGroup - 1) / kGroup;
  at::parallel_for(0, groups, kGroupsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const auto first_call = static_cast<std::uint32_t>(group * kCalls);
      Real* target = mask + group * kGroup;
      if ((group + 1) * kGroup <= size) {
        fill_group(target, first_call, place, step.step, step.seed, dropped, kept);
        continue;
      }
      Real whole[kGroup];
      fill_group(&whole[0], first_call, place, step.step, step.seed, dropped, kept);
      std::copy(whole, whole + (size - group * kGroup), target);
    }
  });
}

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef shape, double rate, const StepOptions& step, Place place,
                        const at::TensorOptions& options) {
  const bool wide = options.dtype() == at::kDouble;
  at::Tensor mask = at::empty(shape, at::TensorOptions(wide ? at::kDouble : at::kFloat));
  if (mask.numel() > (std::int64_t{1} << 32) / kCalls * kGroup) {
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
  const PhiloxCounter words =
      philox({{0, Place{Place::kDroppath}.id(), static_cast<std::uint32_t>(step.step),
               static_cast<std::uint32_t>(step.step >> 32)}},
             step.seed);
  const double uniform = words.word[0] * 0x1p-32;
  if (uniform >= rate) {
    return 0;
  }
  // u in [(j-2) p / (S-1), (j-1) p / (S-1)) drops all scales below j.
  const auto interval = static_cast<std::int64_t>(uniform / rate * static_cast<double>(scales - 1));
  return std::min(interval, scales - 2) + 1;
}

}  // namespace ql::nn
