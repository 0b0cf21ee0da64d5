#include "shard/lineage.h"

#include <algorithm>

#include "base/provenance.h"

namespace ql::shard {

namespace {

// Each generation nests up to three levels; base/json.h reads 64.
constexpr int kMostGenerations = 8;
constexpr std::size_t kMostLineageBytes = std::size_t{256} << 10;

// Readers of a stream or manifest add a few levels, far fewer than are left up to 64.
constexpr int kDeepest = 48;

// Levels of objects and lists.
int depth_of(const Json& json) {
  int below = 0;
  if (!json.is_structured()) return below;
  for (const Json& item : json) below = std::max(below, depth_of(item));
  return below + 1;
}

// Keeps `generations` of what is below.
Json trimmed(const Json& input, int generations) {
  if (input.is_array()) {
    Json list = Json::array();
    for (const Json& item : input) list.push_back(trimmed(item, generations));
    return list;
  }
  if (!input.is_object()) return input;
  Json kept = Json::object();
  for (const auto& [key, value] : input.items()) {
    if (key == "provenance") {
      if (generations > 0) kept[key] = trimmed(value, generations);
    } else if (key == "input") {
      if (generations > 1) kept[key] = trimmed(value, generations - 1);
    } else {
      kept[key] = value;
    }
  }
  return kept;
}

}  // namespace

Json lineage(const Json& configuration, const Json& input) {
  Json made = provenance(configuration);
  for (int generations = kMostGenerations; generations >= 0; --generations) {
    made["input"] = trimmed(input, generations);
    if (made.dump().size() <= kMostLineageBytes && depth_of(made) <= kDeepest) return made;
  }
  made.erase("input");
  return made;
}

}  // namespace ql::shard
