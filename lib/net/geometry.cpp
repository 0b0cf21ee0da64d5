// Checks the lengths of a network, finds the nearest valid ones, and computes the lengths of every
// scale and the states from which each state is computed.

#include "net/geometry.h"

#include <set>

namespace ql::net {

namespace {

// Holds the valid values of one length: multiples of `unit` from `minimum` to `maximum`. These
// bounds are multiples of `unit`, too.
struct Rule {
  std::int64_t minimum = 0;
  std::int64_t maximum = kMaxLength;
  std::int64_t unit = 1;

  bool allows(std::int64_t value) const {
    return value >= minimum && value <= maximum && value % unit == 0;
  }
  // Returns the nearest valid value that is at most `value` if `lower`, otherwise at least `value`.
  // If `value` is outside the range, returns the nearest end of the range.
  std::int64_t nearest(std::int64_t value, bool lower) const {
    const std::int64_t inside = std::max(std::min(value, maximum), minimum);
    return (lower ? inside : inside + unit - 1) / unit * unit;
  }
};

struct Rules {
  Rule segment, memory, compressed_memory;
};

// Returns g(S) = c^(S-1), the tokens per state of the last scale, or nothing when this number
// exceeds kMaxLength.
std::optional<std::int64_t> coarsest_stride(const Network& network) {
  std::int64_t stride = 1;
  for (std::size_t scale = 1; scale < network.scales.size(); ++scale) {
    if (stride > kMaxLength / network.rate) return std::nullopt;
    stride *= network.rate;
  }
  return stride;
}

Rule multiples_of(std::int64_t unit, std::int64_t minimum) {
  return {minimum, kMaxLength / unit * unit, unit};
}

// Returns the rules for the lengths of a network, or nothing when its shortest valid segment
// exceeds kMaxLength.
std::optional<Rules> rules_of(const Network& network) {
  const std::optional<std::int64_t> stride = coarsest_stride(network);
  const bool compressive = network.architecture == Architecture::kCompressive;
  const std::int64_t segment_unit = compressive ? network.rate : stride.value_or(0);
  if (segment_unit == 0) return std::nullopt;
  Rules rules;
  rules.segment = multiples_of(segment_unit, segment_unit);
  // With several scales n_s is a multiple of c. Then n_w is a multiple of c exactly when n_m is a
  // multiple of c.
  const bool pools_memory = network.scales.size() > 1;
  rules.memory = multiples_of(pools_memory ? network.rate : 1, 0);
  if (!keeps_memory(network.architecture)) {
    rules.memory.maximum = 0;
  } else if (network.same_length) {
    rules.memory.minimum = rules.memory.unit;
  }
  if (!compressive) rules.compressed_memory.maximum = 0;
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

// Returns a sentence about the first broken rule.
std::string broken_rule(const Network& network, const Lengths& lengths, const Rules& rules) {
  const std::string name = to_text(network.architecture);
  if (!rules.segment.allows(lengths.segment)) {
    if (lengths.segment < 1 || lengths.segment > rules.segment.maximum) {
      return range_text("segment", rules.segment);
    }
    return network.architecture == Architecture::kCompressive
               ? fmt::format("the segment must be a multiple of the rate {}", network.rate)
               : fmt::format(
                     "the segment must be a multiple of {}, the granularity of scale {} at rate {}",
                     rules.segment.unit, network.scales.size(), network.rate);
  }
  if (!rules.memory.allows(lengths.memory)) {
    if (!keeps_memory(network.architecture)) {
      return fmt::format("a {} network keeps no memory", name);
    }
    if (network.same_length && lengths.memory == 0) {
      return "with same_length a query sees as many keys as the memory has states, so the memory "
             "needs at least one state";
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

// Returns a text such as "memory 8 or 10" or "segment 4 with memory 8, or segment 8 with memory
// 10". The text names only lengths that have to change.
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
  if (parts.size() == 1) return parts.front();
  return changed == 1 ? parts[0] + " or " + parts[1].substr(parts[1].rfind(' ') + 1)
                      : parts[0] + ", or " + parts[1];
}

void check_lengths(const Network& network, const Lengths& lengths) {
  const std::string where = describe(network, lengths);
  const std::optional<Rules> rules = rules_of(network);
  if (!rules) {
    throw ConfigError(
        where,
        fmt::format("{} scales at rate {} need a segment of more than {}, the largest length",
                    network.scales.size(), network.rate, kMaxLength),
        "use fewer scales or a smaller rate");
  }
  const std::vector<Lengths> nearest = nearest_valid_lengths(network, lengths);
  if (nearest.front() == lengths) return;
  throw ConfigError(where, broken_rule(network, lengths, *rules),
                    "nearest valid: " + describe_changes(lengths, nearest));
}

}  // namespace

std::vector<Lengths> nearest_valid_lengths(const Network& network, const Lengths& lengths) {
  network.check_layers();
  const std::optional<Rules> rules = rules_of(network);
  if (!rules) return {};
  std::vector<Lengths> nearest;
  for (const bool lower : {true, false}) {
    const Lengths candidate{rules->segment.nearest(lengths.segment, lower),
                            rules->memory.nearest(lengths.memory, lower),
                            rules->compressed_memory.nearest(lengths.compressed_memory, lower)};
    if (nearest.empty() || !(candidate == nearest.front())) nearest.push_back(candidate);
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
  const std::set<std::int64_t> dilations(network.attention_dilation.begin(),
                                         network.attention_dilation.end());
  geometry.dilations.assign(dilations.begin(), dilations.end());
  if (dilations.empty()) geometry.dilations = {1};

  std::int64_t layer = 0;
  const auto add = [&](Stage stage, std::int64_t layers, std::int64_t output_memory) {
    stage.width = network.width_of(stage.scale);
    stage.span =
        network.same_length ? stage.memory + stage.compressed_memory : network.attention_window;
    for (std::int64_t i = 0; i < layers; ++i) {
      stage.layer = layer++;
      stage.index = geometry.stages.size();
      geometry.stages.push_back(stage);
      stage.source = Stage::Source::kLayer;
      stage.keys_per_state = 1;
    }
    stage.layer = -1;
    stage.memory = output_memory;
    stage.compressed_memory = 0;
    stage.index = geometry.stages.size();
    geometry.stages.push_back(stage);
  };
  const std::int64_t window = lengths.segment + lengths.memory;
  Stage stage;
  stage.segment = lengths.segment;
  stage.memory = lengths.memory;
  stage.compressed_memory = lengths.compressed_memory;
  stage.new_states = lengths.segment;
  for (; stage.scale < network.scales.size(); ++stage.scale) {
    if (stage.scale > 0) {
      stage.source = Stage::Source::kCompressed;
      stage.stride *= network.rate;
      stage.new_states = lengths.segment / stage.stride;
      stage.segment =
          geometry.recurrent ? std::min(window / network.rate, stage.segment) : stage.new_states;
      stage.memory = geometry.recurrent ? window - stage.segment : 0;
      stage.keys_per_state = network.query_only_pooling ? network.rate : 1;
    }
    // The output of each scale except the last keeps its memory for the compression to the next
    // scale. The last output is read only by the average of the scales. There the first tokens take
    // the state before the segment's first new state. If all states of the segment are new, the
    // state before them is in the memory.
    const bool last = stage.scale + 1 == network.scales.size();
    const bool reads_one =
        geometry.recurrent && stage.stride > 1 && stage.segment == stage.new_states;
    add(stage, network.scales[stage.scale], last ? (reads_one ? 1 : 0) : stage.memory);
    geometry.outputs.push_back(geometry.stages.size() - 1);
  }
  if (network.scales.size() > 1 || network.output_layers > 0) {
    // Without output layers the average itself is the output.
    Stage average = geometry.stages.front();
    average.source = Stage::Source::kAveraged;
    average.scale = network.scales.size();
    add(average, network.output_layers, 0);
  }
  return geometry;
}

StateRun states_at(const Geometry& geometry, std::size_t stage, std::int64_t index) {
  const Stage& input = geometry.stages[stage];
  const std::int64_t number =
      -input.memory - index;  // number of the compressed state: 1 is the newest
  if (number <= 0) return {stage, index, 1, 1};
  // `steps` steps ago, `segment` states left the memory and were compressed to `of_step` states.
  // The state at `index` is number `place` of these, from 0.
  const std::int64_t rate = geometry.rate, of_step = input.segment / rate;
  const std::int64_t steps = (number - 1) / of_step + 1;
  const std::int64_t begin =
      -input.memory - steps * input.segment;  // index of the first of the `segment` states
  const std::int64_t place = steps * of_step - number;
  switch (geometry.pool) {
    case Pool::kDilatedConvolution:
      return {stage, begin + place, rate, of_step};
    case Pool::kMostUsed:
      // `of_step` of the `segment` states were kept, in their order. So `place` kept states are
      // older than the one at `index`, and of_step - 1 - place are newer.
      return {stage, begin + place, input.segment - of_step + 1, 1};
    default:
      return {stage, begin + place * rate, rate, 1};
  }
}

// Visits the states that a layer with query_only_pooling reads. `stage` is the layer's input. Keys
// are the states of the input's memory, and the finer states of stage - 1 from which the states of
// the segment were pooled. State `index` of the segment gives only the query.
static void visit_pooled(const Geometry& geometry, std::size_t stage, std::int64_t index,
                         bool oldest_key, const std::function<void(const StateRun&)>& visit) {
  const Stage& input = geometry.stages[stage];
  if (input.memory > 0) visit({stage, -input.memory, oldest_key ? 1 : input.memory, 1});
  if (oldest_key && input.memory > 0) return;
  const std::int64_t first = geometry.stages[stage - 1].segment - input.segment_keys();
  visit({stage - 1, first, oldest_key ? 1 : (index + 1) * input.keys_per_state, 1});
  if (!oldest_key) visit({stage, index, 1, 1});
}

void visit_inputs(const Geometry& geometry, std::size_t stage, std::int64_t index, bool oldest_key,
                  const std::function<void(const StateRun&)>& visit) {
  const Stage& here = geometry.stages[stage];
  const std::size_t before = stage - 1;
  switch (here.source) {
    case Stage::Source::kTokens:
      return;
    case Stage::Source::kLayer: {
      const Stage& input = geometry.stages[before];
      if (input.keys_per_state > 1) {
        visit_pooled(geometry, before, index, oldest_key, visit);
        return;
      }
      for (const std::int64_t dilation : geometry.dilations) {
        const std::int64_t all = (index + input.memory + input.compressed_memory) / dilation + 1;
        const std::int64_t seen = input.span > 0 ? std::min(input.span, all) : all;
        for (std::int64_t k = seen - 1; k >= (oldest_key ? seen - 1 : 0); --k) {
          visit(states_at(geometry, before, index - k * dilation));
        }
      }
      return;
    }
    case Stage::Source::kCompressed: {
      // The last group of `rate` states ends with the segment.
      const std::int64_t to_end = (here.segment - index) * geometry.rate;
      visit({before, geometry.stages[before].segment - to_end, geometry.rate, 1});
      return;
    }
    case Stage::Source::kAveraged:
      // Every scale contributes its last state whose newest token is not after token `index`.
      // Without recurrence the first tokens have no such state at coarser scales.
      for (const std::size_t output : geometry.outputs) {
        const Stage& scale = geometry.stages[output];
        const std::int64_t complete = (index + 1) / scale.stride;
        const std::int64_t last = scale.segment - scale.new_states + complete - 1;
        if (last >= 0 || geometry.recurrent) visit({output, last, 1, 1});
      }
      return;
  }
}

Origin origin_of(const Stage& stage, std::int64_t index) {
  if (index >= 0) return {0, index};
  const std::int64_t before = -1 - index;
  return {1 + before / stage.new_states, stage.new_states - 1 - before % stage.new_states};
}

std::int64_t first_token(const Stage& stage, const Origin& state) {
  const std::int64_t stride = stage.new_states * stage.stride;
  return stride * (1 - state.steps_back) - (stage.segment - state.index) * stage.stride;
}

void find_conflicts(const Network& network, const Lengths& lengths, const std::string& where,
                    Conflicts& conflicts) {
  try {
    network.check_layers();
  } catch (const ConfigError&) {
    return;
  }
  try {
    make_geometry(network, lengths);
  } catch (const ConfigError& error) {
    conflicts.add(where, error.what());
  }
}

}  // namespace ql::net
