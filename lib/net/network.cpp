#include "net/network.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "net/network_keys_internal.h"

namespace ql::net {
namespace {

constexpr std::array kShortNames{"ql", "xl", "compressive", "multiscale", "vanilla"};

void check_encoding(const Network& network, const std::string& where) {
  if (network.clamp_len == 0) {
    throw ConfigError(where, "clamp_len is 0, must be at least 1", "-1 clamps no distance");
  }
  if (network.encoding == Encoding::kShaw && network.clamp_len < 0) {
    throw ConfigError(where, "encoding is shaw, but clamp_len is not set",
                      "set it to the largest distance that gets a vector of its own");
  }
  if (network.encoding != Encoding::kAbsolute) return;
  if (network.architecture != Architecture::kVanilla) {
    throw ConfigError(
        where,
        fmt::format("encoding is absolute, but this network is {}", to_text(network.architecture)),
        "a place in the segment says nothing about a memory or a pooled state: use "
        "it with vanilla");
  }
  if (network.clamp_len > 0) {
    throw ConfigError(where, "clamp_len is set, but encoding is absolute",
                      "it has no distances: leave clamp_len out");
  }
}

void check_attention(const Network& network, const std::string& where) {
  if (network.same_length) {
    if (network.attention_window > 0) {
      throw ConfigError(where, "same_length and attention_window are both set",
                        "each says how many keys a query sees: leave one out");
    }
    if (!keeps_memory(network.architecture)) {
      throw ConfigError(where,
                        fmt::format("same_length is set, but a {} network keeps no memory",
                                    to_text(network.architecture)),
                        "use attention_window");
    }
  }
  if (!network.attention_dilation.empty()) {
    if (network.attention_window == 0) {
      throw ConfigError(where, "attention_dilation is set, but attention_window is not",
                        "it spreads the keys of that window");
    }
    const auto heads = static_cast<std::int64_t>(network.attention_dilation.size());
    if (heads != network.n_head) {
      throw ConfigError(where, fmt::format("attention_dilation has {} values, expected {}: one a "
                                           "head",
                                           heads, network.n_head));
    }
  }
  if (network.attention != Attention::kLinear) return;
  if (network.same_length || network.attention_window > 0) {
    throw ConfigError(where,
                      fmt::format("attention is linear, but {} is set",
                                  network.same_length ? "same_length" : "attention_window"),
                      "linear attention is one sum over the whole window: leave it out");
  }
  if (network.encoding == Encoding::kShaw) {
    throw ConfigError(where, "attention is linear, but encoding is shaw",
                      "feature maps know no distances: use transformer-xl or absolute");
  }
  if (network.pool == Pool::kMostUsed) {
    throw ConfigError(where, "attention is linear, but pool is most-used",
                      "it has no probabilities to choose by: use another pool");
  }
  if (network.dropatt > 0) {
    throw ConfigError(where, fmt::format("attention is linear, but dropatt is {}", network.dropatt),
                      "it has no probabilities to drop: set dropatt to 0");
  }
}

std::vector<std::string> names_of_pools_of_scales() {
  std::vector<std::string> names = all_names<Pool>();
  const auto is_other = [](const std::string& name) {
    return !compresses_scales(*find_named<Pool>(name));
  };
  names.erase(std::remove_if(names.begin(), names.end(), is_other), names.end());
  return names;
}

void check_compression(const Network& network, const std::string& where) {
  if (!compresses_scales(network.pool) && network.architecture != Architecture::kCompressive) {
    throw ConfigError(
        where,
        fmt::format("pool is {}, which only a compressive network has; this one is {}",
                    to_text(network.pool), to_text(network.architecture)),
        fmt::format("use {}", fmt::join(names_of_pools_of_scales(), " or ")));
  }
  if (network.compression_loss == CompressionLoss::kAutoEncoding && !network.learns_compression()) {
    throw ConfigError(where,
                      fmt::format("compression_loss is auto-encoding, which decodes what a "
                                  "convolution compressed; pool is {}",
                                  to_text(network.pool)),
                      "leave compression_loss out, or set the pool of a compressive network to "
                      "convolution or dilated-convolution");
  }
}

void check_scale_widths(const Network& network, const std::string& where) {
  const std::vector<std::int64_t>& widths = network.scale_widths;
  if (widths.empty()) return;
  const char* const cure = "give d_model for the finest scale, then the width of every coarser one";
  if (widths.size() != network.scales.size()) {
    throw ConfigError(where,
                      fmt::format("scale_widths has {} values, expected {}: one a scale",
                                  widths.size(), network.scales.size()),
                      cure);
  }
  if (widths.front() != network.d_model) {
    throw ConfigError(where,
                      fmt::format("scale_widths begins with {}, expected d_model, {}",
                                  widths.front(), network.d_model),
                      cure);
  }
  for (const std::int64_t width : widths) {
    if (width % 2 != 0) {
      throw ConfigError(where, fmt::format("scale_widths: {} must be even", width),
                        "half of a position's encoding are sines, half cosines");
    }
    const std::int64_t inner = network.d_inner * width / network.d_model;
    if (network.d_inner * width % network.d_model != 0 || inner > kMaxWidth) {
      throw ConfigError(where,
                        fmt::format("scale_widths: {} makes d_inner {} * {} / {}, which must be a "
                                    "whole number up to {}",
                                    width, network.d_inner, width, network.d_model, kMaxWidth),
                        "use another width");
    }
  }
}

void check_query_only_pooling(const Network& network, const std::string& where) {
  if (!network.query_only_pooling) return;
  if (network.scales.size() < 2) {
    throw ConfigError(where, "query_only_pooling is set, but there is one scale only",
                      "nothing is pooled between scales: leave it out");
  }
  if (network.same_length || network.attention_window > 0) {
    throw ConfigError(where,
                      fmt::format("query_only_pooling and {} are both set",
                                  network.same_length ? "same_length" : "attention_window"),
                      "a window of states from two scales has no common length to limit: leave one "
                      "out");
  }
}

void check_learned_join(const Network& network, const std::string& where) {
  if (network.learned_join && network.scales.size() < 2) {
    throw ConfigError(where, "learned_join is set, but there is one scale only",
                      "nothing is joined: leave it out");
  }
}

void check_clusters(const Network& network, const std::string& where) {
  if (network.cutoffs_from_data && network.vocab_size > 0) {
    throw ConfigError(where, "cutoffs is auto, but the vocabulary is set",
                      "leave vocab_size out, for qltrain to choose both for its data, or name the "
                      "cutoffs");
  }
  std::int64_t width = network.embedding_width();
  std::int64_t previous = 0;
  for (const std::int64_t cutoff : network.cutoffs) {
    if (cutoff <= previous) {
      throw ConfigError(where,
                        fmt::format("cutoffs: {} follows {}, each must be greater than the one "
                                    "before and than 0",
                                    cutoff, previous),
                        "give them in increasing order, as in [2000, 10000]");
    }
    if (network.vocab_size > 0 && cutoff >= network.vocab_size) {
      throw ConfigError(where,
                        fmt::format("cutoffs: {} is not below the {} entries of the vocabulary",
                                    cutoff, network.vocab_size),
                        "qltrain --set cutoffs=auto chooses them for its data");
    }
    width /= network.div_val;
    if (width < 1) {
      throw ConfigError(where,
                        fmt::format("div_val is {}: nothing is left of d_embed {} in the cluster "
                                    "from {} on",
                                    network.div_val, network.embedding_width(), cutoff),
                        "use a smaller div_val or fewer cutoffs");
    }
    previous = cutoff;
  }
  const std::size_t clusters = network.cutoffs.size() + 1;
  if (!network.tie_projs.empty() && network.tie_projs.size() != clusters) {
    throw ConfigError(where, fmt::format("tie_projs has {} values, expected {}: one a cluster",
                                         network.tie_projs.size(), clusters));
  }
}

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

void Network::check_layers(const std::string& where) const {
  const std::string name = to_text(architecture);
  if (scales.empty()) {
    throw ConfigError(where, "scales is empty", "give the layers of every scale, as in [3, 3]");
  }
  kLayerKeys(*this, key_checker(where));
  const std::int64_t total = layers();
  check_range(where, "the number of layers in all", total, {1, kMaxLayers});
  if (!has_scales(architecture)) {
    if (scales.size() != 1) {
      throw ConfigError(
          where, fmt::format("a {} network has one scale, scales names {}", name, scales.size()),
          fmt::format("give all its layers as one number: [{}]", total));
    }
    if (output_layers != 0) {
      throw ConfigError(where,
                        fmt::format("a {} network has no output layers, output_layers is {}", name,
                                    output_layers),
                        fmt::format("count them in scales: [{}]", total));
    }
  }
  if ((scales.size() > 1 || architecture == Architecture::kCompressive) && rate < 2) {
    throw ConfigError(where,
                      fmt::format("rate is {}, a {} network compresses by 2 or more", rate, name));
  }
}

void Network::check(const std::string& where) const {
  check_layers(where);
  check_keys(where, *this);
  check_range(where, "n_head * d_head", n_head * d_head, {1, kMaxWidth});
  if (d_model % 2 != 0) {
    throw ConfigError(where, fmt::format("d_model is {}, must be even", d_model),
                      "half of a position's encoding are sines, half cosines");
  }
  check_encoding(*this, where);
  check_compression(*this, where);
  if (reset_memory_at_documents && !keeps_memory(architecture)) {
    throw ConfigError(where,
                      fmt::format("reset_memory_at_documents is true, but a {} network keeps no "
                                  "memory",
                                  to_text(architecture)),
                      "set it to false");
  }
  if (droppath > 0 && scales.size() < 2) {
    throw ConfigError(where, fmt::format("droppath is {}, but there is one scale only", droppath),
                      "droppath leaves scales out: set it to 0");
  }
  check_attention(*this, where);
  check_scale_widths(*this, where);
  check_query_only_pooling(*this, where);
  check_learned_join(*this, where);
  check_clusters(*this, where);
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
