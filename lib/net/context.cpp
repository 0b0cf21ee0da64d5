#include "net/context.h"

#include "base/error.h"
#include "net/dependency.h"
#include "net/inputs.h"

namespace ql::net {

bool has_paper_context(const Network& network) {
  return !network.same_length && network.attention_window == 0;
}

ContextLength paper_context(const Network& network, const Lengths& lengths) {
  const Geometry geometry = make_geometry(network, lengths);
  if (!has_paper_context(network)) {
    throw ConfigError(network.same_length ? "same_length" : "attention_window",
                      "the paper's formula is for attention to the whole window",
                      "ask for the exact context length");
  }
  ContextLength context;
  for (std::size_t stage = 1; stage < geometry.stages.size(); ++stage) {
    if (geometry.stages[stage].source != Stage::Source::kAveraged) {
      // Adds how far before the segment the oldest state is that its first state is made from.
      visit_inputs(geometry, stage, 0, true, [&](const StateRun& run) {
        context.minimum -= run.first * geometry.stages[run.stage].granularity;
      });
    }
  }
  context.maximum = context.minimum + lengths.segment;
  return context;
}

std::vector<std::int64_t> exact_lengths(const Geometry& geometry) {
  std::vector<std::int64_t> lengths = oldest_dependencies(geometry);
  for (std::size_t position = 0; position < lengths.size(); ++position) {
    lengths[position] = static_cast<std::int64_t>(position) - lengths[position];
  }
  return lengths;
}

ContextLength exact_context(const Network& network, const Lengths& lengths) {
  return range_of(exact_lengths(make_geometry(network, lengths)));
}

ContextLength range_of(const std::vector<std::int64_t>& lengths) {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  return {*shortest, *longest};
}

}  // namespace ql::net
