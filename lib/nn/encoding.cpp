// Computes the sinusoids and learned vectors of the encodings of positions.

#include "nn/encoding.h"

#include "kernels/projection.h"

namespace ql::nn {

// Returns sinusoids [length, d_model] of `length` distances or places, from nearest + length - 1
// down to `nearest`. Each row has sines, then cosines. If network.clamp_len is set, larger
// distances have the sinusoids of clamp_len.
static at::Tensor sinusoids(const net::Network& network, std::int64_t length,
                            const at::TensorOptions& options, std::int64_t nearest = 0) {
  const auto wide = at::TensorOptions(at::kDouble).device(options.device());
  const std::int64_t d_model = network.d_model;
  at::Tensor distances = at::arange(nearest + length - 1, nearest - 1, -1, wide);
  if (network.clamp_len > 0) distances = distances.clamp_max(network.clamp_len);
  const at::Tensor frequencies =
      at::pow(10000.0, at::arange(0, d_model, 2, wide) / static_cast<double>(-d_model));
  const at::Tensor angles = distances.unsqueeze(1) * frequencies.unsqueeze(0);
  return at::cat({angles.sin(), angles.cos()}, 1).to(options);
}

at::Tensor add_places(const net::Network& network, const at::Tensor& embedded, std::int64_t place) {
  if (network.encoding != net::Encoding::kAbsolute) return embedded;
  return embedded + sinusoids(network, embedded.size(1), embedded.options(), place).flip(0);
}

at::Tensor position_table(const net::Network& network, std::int64_t length,
                          const at::TensorOptions& options) {
  return network.encoding == net::Encoding::kTransformerXl ? sinusoids(network, length, options)
                                                           : at::empty({length, 0}, options);
}

at::Tensor position_scores(const net::Network& network, const AttentionParameters& parameters,
                           const at::Tensor& table) {
  const std::int64_t window = table.size(0);
  const at::Tensor& weight = parameters.encoding;
  switch (network.encoding) {
    case net::Encoding::kTransformerXl:
      return kernels::project(table, weight).view({window, network.n_head, network.d_head});
    case net::Encoding::kShaw: {
      const auto options = at::TensorOptions(at::kLong).device(weight.device());
      const at::Tensor distances = at::arange(window - 1, -1, -1, options);
      return weight.index_select(0, distances.clamp_max(network.clamp_len));
    }
    case net::Encoding::kAbsolute:
      break;
  }
  return {};
}

}  // namespace ql::nn
