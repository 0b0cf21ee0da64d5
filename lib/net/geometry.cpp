#include "net/geometry.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace ql::net {
namespace {

// The valid values of one length: multiples of `unit` from `minimum` to `maximum`, which are
// multiples themselves.
struct Rule {
  std::int64_t minimum = 0;
  std::int64_t maximum = kMaxLength;
  std::int64_t unit = 1;

  bool allows(std::int64_t value) const {
    return value >= minimum && value <= maximum && value % unit == 0;
  }
  std::optional<std::int64_t> below(std::int64_t value) const {
    if (value < minimum) {
      return std::nullopt;
    }
    return std::min(value - value % unit, maximum);
  }
  std::optional<std::int64_t> above(std::int64_t value) const {
    if (value > maximum) {
      return std::nullopt;
    }
    return value <= minimum ? minimum : (value + unit - 1) / unit * unit;
  }
};

struct Rules {
  Rule segment, memory, compressed_memory;
};

// g(S) = c^(S-1), or nothing when that is above the longest segment.
std::optional<std::int64_t> coarsest_granularity(const Network& network) {
  std::int64_t granularity = 1;
  for (std::size_t scale = 1; scale < network.scales.size(); ++scale) {
    if (granularity > kMaxLength / network.rate) {
      return std::nullopt;
    }
    granularity *= network.rate;
  }
  return granularity;
}

Rule multiples_of(std::int64_t unit, std::int64_t minimum) {
  return {minimum, kMaxLength / unit * unit, unit};
}

// Nothing when no segment fits.
std::optional<Rules> rules_of(const Network& network) {
  const std::optional<std::int64_t> granularity = coarsest_granularity(network);
  const bool compressive = network.architecture == Architecture::kCompressive;
  const std::int64_t segment_unit = compressive ? network.rate : granularity.value_or(0);
  if (segment_unit == 0) {
    return std::nullopt;
  }
  Rules rules;
  rules.segment = multiples_of(segment_unit, segment_unit);
  // n_s is a multiple of c when there is a compression, so n_w is one exactly when n_m is.
  const bool pools_memory = network.scales.size() > 1;
  rules.memory = multiples_of(pools_memory ? network.rate : 1, 0);
  if (network.same_length) {
    rules.memory.minimum = rules.memory.unit;
  }
  if (!keeps_memory(network.architecture)) {
    rules.memory.maximum = 0;
  }
  if (!compressive) {
    rules.compressed_memory.maximum = 0;
  }
  return rules;
}

std::string describe(const Network& network, const Lengths& lengths) {
  std::string text = fmt::format("segment {}, memory {}", lengths.segment, lengths.memory);
  if (network.architecture == Architecture::kCompressive || lengths.compressed_memory != 0) {
    text += fmt::format(", compressed memory {}", lengths.compressed_memory);
  }
  return text;
}

std::string range_text(const char* name, const Rule& rule) {
  return fmt::format("the {} must be {} to {}", name, rule.minimum, rule.maximum);
}

// The first rule that is broken, in words.
std::string broken_rule(const Network& network, const Lengths& lengths, const Rules& rules) {
  const std::string name = to_text(network.architecture);
  if (!rules.segment.allows(lengths.segment)) {
    if (lengths.segment < 1 || lengths.segment > rules.segment.maximum) {
      return range_text("segment", rules.segment);
    }
    return network.architecture == Architecture::kCompressive
               ? fmt::format("the segment must be a multiple of the rate {}", network.rate)
               : fmt::format(
                     "the segment must be a multiple of {}, the granularity of scale {} at "
                     "rate {}",
                     rules.segment.unit, network.scales.size(), network.rate);
  }
  if (!rules.memory.allows(lengths.memory)) {
    if (!keeps_memory(network.architecture)) {
      return fmt::format("a {} network keeps no memory", name);
    }
    if (network.same_length && lengths.memory == 0) {
      return "with same_length a query sees as many keys as the memory has states: it needs one";
    }
    if (lengths.memory < 0 || lengths.memory > rules.memory.maximum) {
      return range_text("memory", rules.memory);
    }
    return fmt::format("the window {} must be a multiple of the rate {}",
                       lengths.segment + lengths.memory, network.rate);
  }
  return network.architecture == Architecture::kCompressive
             ? range_text("compressed memory", rules.compressed_memory)
             : fmt::format("a {} network keeps no compressed memory", name);
}

// "memory 8 or 10", "segment 4 with memory 8, or segment 8 with memory 10": only what has to
// change.
std::string describe_changes(const Lengths& lengths, const std::vector<Lengths>& nearest) {
  int changed = 0;
  std::vector<std::string> parts(nearest.size());
  const auto compare = [&](const char* name, std::int64_t Lengths::*member) {
    for (std::size_t i = 0; i < nearest.size(); ++i) {
      if (nearest[i].*member != lengths.*member) {
        parts[i] +=
            fmt::format("{}{} {}", parts[i].empty() ? "" : " with ", name, nearest[i].*member);
      }
    }
    changed += nearest.front().*member != lengths.*member ? 1 : 0;
  };
  compare("segment", &Lengths::segment);
  compare("memory", &Lengths::memory);
  compare("compressed memory", &Lengths::compressed_memory);
  if (parts.size() == 1) {
    return parts.front();
  }
  return changed == 1 ? parts[0] + " or " + parts[1].substr(parts[1].rfind(' ') + 1)
                      : parts[0] + ", or " + parts[1];
}

void check_lengths(const Network& network, const Lengths& lengths) {
  const std::string where = describe(network, lengths);
  const std::optional<Rules> rules = rules_of(network);
  if (!rules) {
    throw ConfigError(where,
                      fmt::format("{} scales at rate {} need a segment above the longest, {}",
                                  network.scales.size(), network.rate, kMaxLength),
                      "use fewer scales or a smaller rate");
  }
  const std::vector<Lengths> nearest = nearest_valid_lengths(network, lengths);
  if (nearest.front() == lengths) {
    return;
  }
  throw ConfigError(where, broken_rule(network, lengths, *rules),
                    "nearest valid: " + describe_changes(lengths, nearest));
}

void limit_attention(const Network& network, Geometry& geometry) {
  const auto limit = [&](ScaleGeometry& scale) {
    scale.reach.span =
        network.same_length ? scale.memory + geometry.compressed_memory : network.attention_window;
    scale.reach.dilations = network.attention_dilation;
  };
  for (ScaleGeometry& scale : geometry.scales) {
    limit(scale);
  }
  limit(geometry.output);
}

void keep_outputs(Geometry& geometry) {
  for (ScaleGeometry& scale : geometry.scales) {
    const bool reads_one = geometry.recurrent && scale.granularity > 1;
    const bool compressed = &scale != &geometry.scales.back();
    scale.output_memory =
        compressed ? scale.memory : (reads_one && scale.segment == scale.shift ? 1 : 0);
  }
}

// The n_s states that leave the memory in a step become b = n_s / c. Of the oldest step in the
// compressed memory the last p of b are there, if n_cm is no multiple of b. The state with number
// b - p among them is made from states number (b - p) * c on, when each takes its c neighbours.
// Where its c states are spread over the step, or it is one of those that were chosen in their
// order, it reaches back to number b - p: as many states must come before it, and may be no more.
std::int64_t compressed_reach(const Network& network, const Lengths& lengths) {
  const std::int64_t of_step = lengths.segment / network.rate;
  const std::int64_t kept = lengths.compressed_memory % of_step;
  if (!spreads(network.pool) || kept == 0) {
    return lengths.compressed_memory * network.rate;
  }
  return lengths.compressed_memory / of_step * lengths.segment + lengths.segment - (of_step - kept);
}

}  // namespace

std::vector<Lengths> nearest_valid_lengths(const Network& network, const Lengths& lengths) {
  network.check_layers();
  const std::optional<Rules> rules = rules_of(network);
  if (!rules) {
    return {};
  }
  const auto pick = [](const Rule& rule, std::int64_t value, bool lower) {
    const auto first = lower ? rule.below(value) : rule.above(value);
    return first ? *first : *(lower ? rule.above(value) : rule.below(value));
  };
  std::vector<Lengths> nearest;
  for (const bool lower : {true, false}) {
    Lengths candidate;
    candidate.segment = pick(rules->segment, lengths.segment, lower);
    candidate.memory = pick(rules->memory, lengths.memory, lower);
    candidate.compressed_memory = pick(rules->compressed_memory, lengths.compressed_memory, lower);
    if (nearest.empty() || !(candidate == nearest.front())) {
      nearest.push_back(candidate);
    }
  }
  return nearest;
}

Geometry make_geometry(const Network& network, const Lengths& lengths) {
  network.check_layers();
  check_lengths(network, lengths);
  Geometry geometry;
  geometry.lengths = lengths;
  geometry.rate = network.rate;
  geometry.pool = network.pool;
  geometry.recurrent = keeps_memory(network.architecture);
  geometry.compressed_memory = lengths.compressed_memory;
  if (lengths.compressed_memory > 0) {
    geometry.compressed_reach = compressed_reach(network, lengths);
  }

  const std::int64_t window = lengths.segment + lengths.memory;
  ScaleGeometry scale;
  scale.segment = lengths.segment;
  scale.memory = lengths.memory;
  scale.shift = lengths.segment;
  for (std::size_t i = 0; i < network.scales.size(); ++i) {
    if (i > 0) {
      scale.granularity *= network.rate;
      scale.shift = lengths.segment / scale.granularity;
      scale.segment =
          geometry.recurrent ? std::min(window / network.rate, scale.segment) : scale.shift;
      scale.memory = geometry.recurrent ? window - scale.segment : 0;
    }
    scale.layers = network.scales[i];
    geometry.scales.push_back(scale);
  }
  keep_outputs(geometry);
  if (network.output_layers > 0) {
    geometry.output = geometry.scales.front();
    geometry.output.layers = network.output_layers;
    geometry.output.output_memory = 0;
  }
  limit_attention(network, geometry);
  return geometry;
}

}  // namespace ql::net
