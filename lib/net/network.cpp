// Implements the rules that the keys of a network must obey, and the names of architectures.

#include "net/network.h"

#include <numeric>

namespace ql::net {

constexpr std::array kShortNames{"ql", "xl", "compressive", "multiscale", "vanilla"};

std::vector<bool> Network::resolved_tie_projs() const {
  if (!tie_projs.empty()) return tie_projs;
  // The public Transformer-XL code ties the projections of all clusters except the first one, which
  // has the most frequent ids.
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
  return architecture == Architecture::kCompressive && row_of(pool).has(PoolRow::kLearned);
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

std::vector<Lengths> all_lengths(const LengthLists& lists, const Lengths& own) {
  const auto or_own = [](const std::vector<std::int64_t>& list, std::int64_t value) {
    return list.empty() ? std::vector<std::int64_t>{value} : list;
  };
  std::vector<Lengths> all;
  for (const std::int64_t segment : or_own(lists.segments, own.segment)) {
    for (const std::int64_t memory : or_own(lists.memories, own.memory)) {
      for (const std::int64_t compressed :
           or_own(lists.compressed_memories, own.compressed_memory)) {
        all.push_back({segment, memory, compressed});
      }
    }
  }
  return all;
}

std::string to_short_text(Architecture architecture) {
  return kShortNames.at(static_cast<std::size_t>(architecture));
}

Network with_change(Network network, const AttentionChange& change) {
  if (change.clamp_len && row_of(network.encoding).has(EncodingRow::kClamped)) {
    throw ConfigError("clamp_len",
                      "the network has a learned vector for each distance up to its own",
                      "leave --clamp-len out");
  }
  network.clamp_len = change.clamp_len.value_or(network.clamp_len);
  network.same_length = network.same_length || change.same_length;
  if (change.clamp_len || change.same_length) network.check();
  return network;
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

namespace ql::net {

// Each check_...() function checks the rules for a group of keys.

namespace {

// Adds conflicts that all name the same `where`.
struct Report {
  const std::string& where;
  Conflicts& conflicts;
  void operator()(const std::string& what, const std::string& remedy = "",
                  const std::string& setting = "") const {
    conflicts.add(where, what, remedy, setting);
  }
};

// Returns the names of the rows with this mark, as in "max or mean".
template <typename Table>
std::string choice_of(const Table& table, unsigned mark) {
  std::vector<std::string> names;
  for (const auto& row : table) {
    if (row.has(mark)) names.emplace_back(row.name);
  }
  return fmt::format("{}", fmt::join(names, " or "));
}

void check_encoding(const Network& network, const Report& report) {
  const EncodingRow& encoding = row_of(network.encoding);
  if (network.clamp_len == 0) {
    if (encoding.has(EncodingRow::kClamped)) {
      report(
          fmt::format("clamp_len is 0, but with encoding {} it must be at least 1", encoding.name),
          "set clamp_len to 1 or more: larger distances get the vector of the distance clamp_len");
    } else {
      report("clamp_len is 0, but must be -1 or at least 1", "use -1 to clamp no distance",
             "clamp_len=-1");
    }
  }
  if (encoding.has(EncodingRow::kClamped) && network.clamp_len < 0) {
    report(fmt::format("encoding is {}, but clamp_len sets no limit", encoding.name),
           "set clamp_len to 1 or more: larger distances get the vector of the distance clamp_len");
  }
  if (!encoding.has(EncodingRow::kPlaces)) return;
  if (network.architecture != Architecture::kVanilla) {
    report(fmt::format("encoding is {}, but architecture is {}", encoding.name,
                       to_text(network.architecture)),
           "this encoding gives memories and pooled states no position: use another encoding, or "
           "architecture vanilla",
           "encoding=transformer-xl");
  }
  if (network.clamp_len > 0) {
    report(fmt::format("clamp_len is set, but encoding is {}", encoding.name),
           "this encoding has no distances: leave clamp_len out", "clamp_len=-1");
  }
}

void check_attention(const Network& network, const Report& report) {
  const bool may_limit = !network.query_only_pooling && network.attention != Attention::kLinear;
  if (network.same_length) {
    if (network.attention_window > 0) {
      report("same_length and attention_window are both set",
             "each says how many keys a query sees: leave one out", "attention_window=0");
    }
    if (!keeps_memory(network.architecture)) {
      report(fmt::format("same_length is set, but a {} network keeps no memory",
                         to_text(network.architecture)),
             may_limit ? "use attention_window instead" : "leave same_length out",
             "same_length=false");
    }
  }
  if (!network.attention_dilation.empty()) {
    if (network.attention_window == 0) {
      report("attention_dilation is set, but attention_window is not",
             may_limit && !network.same_length
                 ? "set attention_window, too, or leave attention_dilation out"
                 : "leave attention_dilation out",
             "attention_dilation=[]");
    }
    const auto heads = static_cast<std::int64_t>(network.attention_dilation.size());
    if (heads != network.n_head) {
      report(
          fmt::format("attention_dilation has the length {}, expected {}: one value for each head",
                      heads, network.n_head));
    }
  }
  if (network.attention != Attention::kLinear) return;
  if (network.same_length || network.attention_window > 0) {
    report(fmt::format("attention is linear, but {} is set",
                       network.same_length ? "same_length" : "attention_window"),
           fmt::format("linear attention sums over all keys of the window: leave {} out",
                       network.same_length ? "same_length" : "attention_window"),
           network.same_length ? "same_length=false" : "attention_window=0");
  }
  if (!row_of(network.encoding).has(EncodingRow::kFeatures)) {
    report(fmt::format("attention is linear, but encoding is {}", to_text(network.encoding)),
           fmt::format("linear attention cannot use this encoding's vectors: use encoding {}",
                       network.architecture == Architecture::kVanilla
                           ? choice_of(kEncodings, EncodingRow::kFeatures)
                           : to_text(Encoding::kTransformerXl)),
           "encoding=transformer-xl");
  }
  if (network.pool == Pool::kMostUsed) {
    report("attention is linear, but pool is most-used",
           "linear attention has no probabilities to choose states by: use another pool",
           "pool=max");
  }
  if (network.dropatt > 0) {
    report(fmt::format("attention is linear, but dropatt is {}", network.dropatt),
           "linear attention has no probabilities to drop: set dropatt to 0", "dropatt=0");
  }
}

void check_compression(const Network& network, const Report& report) {
  const bool of_scales = row_of(network.pool).has(PoolRow::kScales);
  if (!of_scales && network.architecture != Architecture::kCompressive) {
    report(
        fmt::format("pool is {}, which only a compressive network supports, but architecture is {}",
                    to_text(network.pool), to_text(network.architecture)),
        fmt::format("use {}", choice_of(kPools, PoolRow::kScales)), "pool=max");
  }
  if (network.compression_loss == CompressionLoss::kAutoEncoding && !network.learns_compression()) {
    report(fmt::format("compression_loss is auto-encoding, which decodes the states that a "
                       "convolution has compressed, but architecture is {} and pool is {}",
                       to_text(network.architecture), to_text(network.pool)),
           "leave compression_loss out, or use architecture compressive with pool convolution or "
           "dilated-convolution",
           "compression_loss=attention-reconstruction");
  }
}

void check_scale_widths(const Network& network, const Report& report) {
  const std::vector<std::int64_t>& widths = network.scale_widths;
  if (widths.empty()) return;
  const char* const remedy =
      "give d_model first, then the width of every coarser scale, or leave scale_widths out";
  if (widths.size() != network.scales.size()) {
    report(fmt::format("scale_widths has the length {}, expected {}: one value for each scale",
                       widths.size(), network.scales.size()),
           remedy, "scale_widths=[]");
    return;
  }
  if (widths.front() != network.d_model) {
    report(fmt::format("scale_widths begins with {}, but must begin with d_model, which is {}",
                       widths.front(), network.d_model),
           remedy);
  }
  for (const std::int64_t width : widths) {
    if (width % 2 != 0) {
      report(fmt::format("scale_widths: {} is odd, but every width must be even", width),
             "give an even width, which every encoding takes");
      return;
    }
    const std::int64_t inner = network.d_inner * width / network.d_model;
    if (network.d_inner * width % network.d_model != 0 || inner > kMaxWidth) {
      report(fmt::format("scale_widths: at width {} the scale's d_inner is {} * {} / {}, which "
                         "must be a whole number up to {}",
                         width, network.d_inner, width, network.d_model, kMaxWidth),
             "use another width");
      return;
    }
  }
}

void check_query_only_pooling(const Network& network, const Report& report) {
  if (!network.query_only_pooling) return;
  if (network.scales.size() == 1) {
    report("query_only_pooling is set, but there is one scale only",
           "nothing is pooled between scales: leave query_only_pooling out",
           "query_only_pooling=false");
  }
  if (network.same_length || network.attention_window > 0) {
    report(fmt::format("query_only_pooling and {} are both set",
                       network.same_length ? "same_length" : "attention_window"),
           "query_only_pooling mixes states of two scales, which cannot be counted together: "
           "leave one of the two keys out",
           "query_only_pooling=false");
  }
}

void check_learned_join(const Network& network, const Report& report) {
  if (network.learned_join && network.scales.size() == 1) {
    report("learned_join is set, but there is one scale only",
           "nothing is joined: leave learned_join out", "learned_join=false");
  }
}

// Reports the first wrong cutoff only: it may be the reason why later ones look wrong.
void check_cutoffs(const Network& network, const Report& report) {
  std::int64_t width = network.embedding_width();
  std::int64_t previous = 0;
  for (const std::int64_t cutoff : network.cutoffs) {
    if (cutoff < 1) {
      return report(fmt::format("cutoffs has {}, but cutoffs must be above 0 and increase", cutoff),
                    "give them in increasing order, as in [2000, 10000]");
    }
    if (cutoff <= previous) {
      return report(
          fmt::format("cutoffs: {} follows {}, but cutoffs must increase", cutoff, previous),
          "give them in increasing order, as in [2000, 10000]");
    }
    if (network.vocab_size > 0 && cutoff >= network.vocab_size) {
      return report(fmt::format("cutoffs: {} must be below {}, the size of the vocabulary", cutoff,
                                network.vocab_size),
                    "use smaller cutoffs, or let the training data decide on cutoffs and "
                    "vocab_size: qltrain --set cutoffs=auto --set vocab_size=0");
    }
    width /= network.div_val;
    if (width < 1) {
      return report(fmt::format("div_val is {}, which reduces the embedding width {} to 0 in the "
                                "cluster that begins with id {}",
                                network.div_val, network.embedding_width(), cutoff),
                    "use a smaller div_val or fewer cutoffs");
    }
    previous = cutoff;
  }
}

void check_clusters(const Network& network, const Report& report) {
  if (network.cutoffs_from_data && network.vocab_size > 0) {
    report("cutoffs is auto, but vocab_size is set",
           "leave vocab_size out, so that qltrain takes both from its data, or give the cutoffs as "
           "numbers",
           "vocab_size=0");
  }
  check_cutoffs(network, report);
  const std::size_t clusters = network.cutoffs.size() + 1;
  // Nobody knows yet how many cutoffs the data will give.
  if (!network.cutoffs_from_data && !network.tie_projs.empty() &&
      network.tie_projs.size() != clusters) {
    report(fmt::format("tie_projs has the length {}, expected {}: one more than there are cutoffs",
                       network.tie_projs.size(), clusters),
           "give one value for each range of ids, or leave tie_projs out", "tie_projs=[]");
  }
}

// `in_range` is true when all values of kLayerKeys are in their ranges.
void check_scales(const Network& network, bool in_range, const Report& report) {
  const std::string name = to_text(network.architecture);
  if (network.scales.empty()) {
    return report("scales is empty", "give the layers of every scale, as in [3, 3]");
  }
  if (!in_range) return;
  const std::int64_t total = network.layers();
  check_range(report.where, "the number of layers in all", total, {1, kMaxLayers},
              report.conflicts);
  if (!has_scales(network.architecture)) {
    if (network.scales.size() != 1) {
      report(fmt::format("a {} network has one scale, but scales has {} values", name,
                         network.scales.size()),
             fmt::format("give all its layers as one number: [{}]", total),
             fmt::format("scales=[{}]", total));
    }
    if (network.output_layers != 0) {
      report(fmt::format("a {} network has no output layers, but output_layers is {}", name,
                         network.output_layers),
             fmt::format("set it to 0, and scales to [{}] to keep these layers", total),
             "output_layers=0");
    }
  }
  if ((network.scales.size() > 1 || network.architecture == Architecture::kCompressive) &&
      network.rate < 2) {
    report(fmt::format("rate is {}, but compression needs a rate of 2 or more", network.rate), "",
           "rate=2");
  }
}

}  // namespace

void Network::check_layers(const std::string& where) const {
  Conflicts conflicts;
  const auto check = key_checker(where, conflicts);
  kLayerKeys(*this, check);
  check("attention_dilation", attention_dilation, kDilations);
  check_scales(*this, conflicts.size() == 0, {where, conflicts});
  conflicts.raise();
}

void find_conflicts(const Network& network, const std::string& where, Conflicts& conflicts) {
  const Report report{where, conflicts};
  // Some rules compute with the values of several keys. Such a rule is checked only if these values
  // are in their ranges.
  Conflicts ranges;
  kLayerKeys(network, key_checker(where, ranges));
  const bool layers_in_range = ranges.size() == 0;
  check_keys(where, network, ranges);
  const bool in_range = ranges.size() == 0;
  check_keys(where, network, conflicts);
  check_scales(network, layers_in_range, report);
  if (in_range) {
    check_range(where, "n_head * d_head", network.n_head * network.d_head, {1, kMaxWidth},
                conflicts);
    check_scale_widths(network, report);
    check_clusters(network, report);
  }
  if (network.d_model % 2 != 0) {
    report(fmt::format("d_model is {}, but must be even", network.d_model),
           "give an even width, which every encoding takes");
  }
  check_encoding(network, report);
  check_compression(network, report);
  if (network.reset_memory_at_documents && !keeps_memory(network.architecture)) {
    report(fmt::format("reset_memory_at_documents is true, but a {} network keeps no memory",
                       to_text(network.architecture)),
           "set it to false", "reset_memory_at_documents=false");
  }
  if (network.droppath > 0 && network.scales.size() == 1) {
    report(fmt::format("droppath is {}, but there is one scale only", network.droppath),
           "droppath leaves scales out: set it to 0", "droppath=0");
  }
  check_attention(network, report);
  check_query_only_pooling(network, report);
  check_learned_join(network, report);
}

void Network::check(const std::string& where) const {
  Conflicts conflicts;
  find_conflicts(*this, where, conflicts);
  conflicts.raise();
}

}  // namespace ql::net
