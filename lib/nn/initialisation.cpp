#include "nn/initialisation_internal.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
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

// A table of embeddings may be the largest tensor by far: its numbers are drawn in parts.
constexpr std::int64_t kPart = std::int64_t{1} << 20;

// Draws the standard normal numbers of a parameter from `first`, which is even, on. Box and
// Muller's method makes two from every pair of uniform numbers.
at::Tensor normal_numbers(std::int64_t first, std::int64_t size, std::uint32_t parameter,
                          std::uint64_t seed) {
  at::Tensor numbers = at::empty({size}, at::kDouble);
  auto* out = numbers.data_ptr<double>();
  at::parallel_for(0, (size + 1) / 2, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t pair = first / 2 + i;
      const kernels::PhiloxCounter words =
          kernels::philox({{static_cast<std::uint32_t>(pair),
                            static_cast<std::uint32_t>(pair >> 32), parameter, kInitialisation}},
                          seed);
      // The half keeps the uniform number above 0, so the logarithm is finite.
      const double radius = std::sqrt(-2 * std::log((words.word[0] + 0.5) * 0x1p-32));
      const double angle = 2 * M_PI * (words.word[1] * 0x1p-32);
      out[2 * i] = radius * std::cos(angle);
      if (2 * i + 1 < size) out[2 * i + 1] = radius * std::sin(angle);
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
    const at::Tensor all = parameter.tensor.view(-1);
    for (std::int64_t first = 0; first < all.numel(); first += kPart) {
      const std::int64_t count = std::min(kPart, all.numel() - first);
      all.narrow(0, first, count)
          .copy_(normal_numbers(first, count, number, seed)
                     .mul_(is_projection ? network.proj_init_std : network.init_std)
                     .add_(is_norm ? 1.0 : 0.0));
    }
  }
}

}  // namespace ql::nn
