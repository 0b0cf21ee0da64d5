#include "net/network.h"

#include <array>
#include <numeric>

namespace ql::net {
namespace {

constexpr std::array kShortNames{"ql", "xl", "compressive", "multiscale", "vanilla"};

}  // namespace

std::vector<bool> Network::resolved_tie_projs() const {
  if (!tie_projs.empty()) return tie_projs;
  // The public training script ties all projections but that of the most frequent ids.
  std::vector<bool> resolved(cutoffs.size() + 1, true);
  resolved.front() = false;
  return resolved;
}

std::int64_t Network::width_of(std::size_t scale) const {
  return scale < scale_widths.size() ? scale_widths[scale] : d_model;
}

bool Network::maps_into_join(std::size_t scale) const {
  return learned_join || width_of(scale) != d_model;
}

Network Network::of_scale(std::size_t scale) const {
  Network network = *this;
  const std::int64_t width = width_of(scale);
  if (width != d_model) network.d_inner = d_inner * width / d_model;
  network.d_model = width;
  return network;
}

std::int64_t Network::layers() const {
  return std::accumulate(scales.begin(), scales.end(), output_layers);
}

bool Network::learns_compression() const {
  return architecture == Architecture::kCompressive &&
         (pool == Pool::kConvolution || pool == Pool::kDilatedConvolution);
}

bool Network::learns_decoder() const {
  return learns_compression() && compression_loss == CompressionLoss::kAutoEncoding;
}

bool keeps_memory(Architecture architecture) {
  return architecture != Architecture::kMultiScale && architecture != Architecture::kVanilla;
}

bool has_scales(Architecture architecture) {
  return architecture == Architecture::kTransformerQl || architecture == Architecture::kMultiScale;
}

std::string to_short_text(Architecture architecture) {
  return kShortNames.at(static_cast<std::size_t>(architecture));
}

}  // namespace ql::net

namespace ql {

template <>
std::optional<net::Architecture> find_named(std::string_view name) {
  for (std::size_t i = 0; i < net::kShortNames.size(); ++i) {
    const auto architecture = static_cast<net::Architecture>(i);
    if (name == net::kShortNames[i] || name == to_text(architecture)) return architecture;
  }
  return std::nullopt;
}

}  // namespace ql
