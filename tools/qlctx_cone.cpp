// Describes as JSON the cone of an output state: the states and tokens on which the state depends.

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

// `versions` is the part of the Cone that belongs to `stage`.
Json stage_to_json(const std::string& name, const net::Stage& stage, std::int64_t rate,
                   const std::vector<std::vector<bool>>& versions) {
  // An index below 0 is for a state of the memory.
  const auto token = [&](std::int64_t index) {
    return net::first_token(stage, net::origin_of(stage, index));
  };
  const auto is_used = [&](std::int64_t index) {
    const net::Origin origin = net::origin_of(stage, index);
    const auto step = static_cast<std::size_t>(origin.steps_back);
    return step < versions.size() && versions[step][static_cast<std::size_t>(origin.index)];
  };
  Json json{{"name", name}, {"scale", stage.scale + 1}, {"granularity", stage.stride}};
  // Lists `count` states that begin with `first`. Each stands for `group` neighbouring ones.
  const auto list = [&](const char* key, std::int64_t first, std::int64_t count,
                        std::int64_t group) {
    Json used = Json::array(), unused = Json::array();
    for (std::int64_t end = first + count * group; first < end; first += group) {
      bool any = false;
      for (std::int64_t i = 0; i < group; ++i) any = any || is_used(first + i);
      (any ? used : unused).push_back(token(first));
    }
    json[key] = {{"used", std::move(used)}, {"unused", std::move(unused)}};
  };
  const std::int64_t oldest = -stage.memory - stage.compressed_memory * rate;
  list("compressed_memory", oldest, stage.compressed_memory, rate);
  list("memory", -stage.memory, stage.memory, 1);
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
  json["earlier"] = std::set<std::int64_t>(all.begin(), all.lower_bound(token(oldest)));
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
    stages.push_back(
        stage_to_json(name_of(row, stage), geometry.stages[stage], geometry.rate, cone[stage]));
  }
  return {{"position", position},
          {"length", net::exact_lengths(geometry)[static_cast<std::size_t>(position - 1)]},
          {"stages", std::move(stages)}};
}

}  // namespace ql::ctx
