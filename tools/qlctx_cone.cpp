// Describes as JSON the cone of an output state: the states and tokens on which the state depends.

#include <algorithm>
#include <set>

#include "qlctx_report.h"

namespace ql::ctx {

namespace {

std::string name_of(const Row& row, std::size_t stage) {
  const net::Stage& here = row.geometry.stages[stage];
  std::string name;
  switch (here.source) {
    case net::Stage::Source::kTokens:
      name = "embedded tokens";
      break;
    case net::Stage::Source::kLayer:
      name = fmt::format("layer {}", row.geometry.stages[stage - 1].layer + 1);
      break;
    case net::Stage::Source::kCompressed:
      name = fmt::format("{} of {} states", net::to_text(row.network.pool), row.geometry.rate);
      break;
    case net::Stage::Source::kAveraged:
      name = "average of scales";
      break;
  }
  return stage + 1 == row.geometry.stages.size() ? "output: " + name : name;
}

// `versions` is the part of the Cone that belongs to the stage.
Json stage_to_json(const Row& row, std::size_t number,
                   const std::vector<std::vector<bool>>& versions) {
  const net::Stage& stage = row.geometry.stages[number];
  // An index below 0 is for a state of the memory.
  const auto token = [&](std::int64_t index) {
    return net::first_token(stage, net::origin_of(stage, index));
  };
  const auto is_used = [&](std::int64_t index) {
    const net::Origin origin = net::origin_of(stage, index);
    const auto step = static_cast<std::size_t>(origin.steps_back);
    return step < versions.size() && versions[step][static_cast<std::size_t>(origin.index)];
  };
  // Returns the indexes of the states that an index in the window stands for.
  const auto states_of = [&](std::int64_t index) {
    const net::StateRun run = net::states_at(row.geometry, number, index);
    std::vector<std::int64_t> states;
    for (std::int64_t i = 0; i < run.count; ++i) states.push_back(run.first + i * run.step);
    return states;
  };
  Json json{
      {"name", name_of(row, number)}, {"scale", stage.scale + 1}, {"granularity", stage.stride}};
  // Lists the states with the indexes `begin` to `end` - 1 of the window. A compressed state is
  // listed as `rate` neighbours, with every pool, so that the lists have each token once.
  const auto list = [&](const char* key, std::int64_t begin, std::int64_t end, std::int64_t group) {
    Json used = Json::array(), unused = Json::array();
    for (std::int64_t index = begin; index < end; ++index) {
      const std::vector<std::int64_t> states = states_of(index);
      const bool any = std::any_of(states.begin(), states.end(), is_used);
      (any ? used : unused).push_back(token(end - (end - index) * group));
    }
    json[key] = {{"used", std::move(used)}, {"unused", std::move(unused)}};
  };
  const std::int64_t oldest = -stage.memory - stage.compressed_memory;
  list("compressed_memory", oldest, -stage.memory, row.geometry.rate);
  list("memory", -stage.memory, 0, 1);
  list("segment", 0, stage.segment, 1);

  std::set<std::int64_t> all;
  for (std::size_t step = 0; step < versions.size(); ++step) {
    for (std::size_t i = 0; i < versions[step].size(); ++i) {
      if (versions[step][i]) {
        all.insert(net::first_token(
            stage, {static_cast<std::int64_t>(step), static_cast<std::int64_t>(i)}));
      }
    }
  }
  // A state may be used in an older version only, although the window has its present one.
  std::set<std::int64_t> earlier = all;
  for (std::int64_t index = oldest; index < stage.segment; ++index) {
    for (const std::int64_t state : states_of(index)) {
      if (is_used(state)) earlier.erase(token(state));
    }
  }
  json["earlier"] = earlier;
  json["from"] = all.empty() ? Json() : Json(*all.begin());
  json["to"] = all.empty() ? Json() : Json(*all.rbegin() + stage.stride - 1);
  return json;
}

}  // namespace

Json cone_to_json(const Row& row, std::int64_t position) {
  const net::Geometry& geometry = row.geometry;
  const std::int64_t segment = geometry.lengths.segment;
  if (position > segment) {
    throw UsageError("--position", fmt::format("expected 1 to {}, the segment's length, found {}",
                                               segment, position));
  }
  const net::Cone cone = net::cone_of(geometry, position - 1);
  Json stages = Json::array();
  for (std::size_t stage = 0; stage < cone.size(); ++stage) {
    stages.push_back(stage_to_json(row, stage, cone[stage]));
  }
  return {{"position", position},
          {"length", net::exact_lengths(geometry)[static_cast<std::size_t>(position - 1)]},
          {"stages", std::move(stages)}};
}

}  // namespace ql::ctx
