#include "nn/initialisation_internal.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <string>
#include <string_view>

#include "kernels/philox.h"

namespace ql::nn {
namespace {

// Philox's fourth counter word; dropout's holds the upper half of the step number there and never
// reaches this.
constexpr std::uint32_t kInitialisation = 0xFFFFFFFF;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Draws standard normal numbers by Box and Muller's method, two from every pair of uniform numbers.
at::Tensor normal_numbers(std::int64_t size, std::uint32_t parameter, std::uint64_t seed) {
  at::Tensor numbers = at::empty({size}, at::kDouble);
  auto* out = numbers.data_ptr<double>();
  at::parallel_for(0, (size + 1) / 2, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      const kernels::PhiloxCounter words =
          kernels::philox({{static_cast<std::uint32_t>(pair),
                            static_cast<std::uint32_t>(pair >> 32), parameter, kInitialisation}},
                          seed);
      // The half keeps the uniform number above 0, so the logarithm is finite.
      const double radius = std::sqrt(-2 * std::log((words.word[0] + 0.5) * 0x1p-32));
      const double angle = 2 * M_PI * (words.word[1] * 0x1p-32);
      out[2 * pair] = radius * std::cos(angle);
      if (2 * pair + 1 < size) out[2 * pair + 1] = radius * std::sin(angle);
    }
  });
  return numbers;
}

}  // namespace

void initialise(Parameters& parameters, const net::Network& network, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  std::uint32_t number = 0;
  for (NamedTensor& parameter : parameters.named) {
    ++number;
    const bool is_norm = parameter.name.find("layer_norm") != std::string::npos;
    const bool is_attention_bias =
        ends_with(parameter.name, "r_w_bias") || ends_with(parameter.name, "r_r_bias");
    const bool is_projection = parameter.name.find("_projs.") != std::string::npos;
    if (parameter.name.rfind("scales.", 0) == 0) {
      // A state keeps its numbers and gets zeros behind them, or loses what is behind.
      at::eye_out(parameter.tensor, parameter.tensor.size(0), parameter.tensor.size(1));
      continue;
    }
    if (ends_with(parameter.name, "bias") && !is_attention_bias) {
      parameter.tensor.zero_();
      continue;
    }
    const at::Tensor values = normal_numbers(parameter.tensor.numel(), number, seed) *
                                  (is_projection ? network.proj_init_std : network.init_std) +
                              (is_norm ? 1.0 : 0.0);
    parameter.tensor.copy_(values.view(parameter.tensor.sizes()));
  }
}

}  // namespace ql::nn
