#include "net/cone.h"

#include <algorithm>

#include "net/window.h"

namespace ql::net {
namespace {

// Follows dependencies from the output state downwards. A place depends on places before it only,
// so one pass from the last place to the first is enough.
class Follower {
 public:
  explicit Follower(const Geometry& geometry)
      : geometry_(geometry), places_(places(geometry)), cone_(places_.size()) {}

  Cone follow(std::int64_t position) {
    mark(places_.size() - 1, 0, position);
    for (std::size_t place = places_.size(); place-- > 1;) {
      for (std::size_t step = 0; step < cone_[place].size(); ++step) {
        follow_step(place, static_cast<std::int64_t>(step));
      }
    }
    std::size_t steps = 0;
    for (const auto& place : cone_) {
      steps = std::max(steps, place.size());
    }
    for (std::size_t place = 0; place < places_.size(); ++place) {
      cone_[place].resize(steps, std::vector<bool>(size_of(place)));
    }
    return std::move(cone_);
  }

 private:
  std::size_t size_of(std::size_t place) const {
    return static_cast<std::size_t>(places_[place].segment);
  }

  // A negative index is a state of the memory: the first `shift` states of the segment as they were
  // a step ago, two steps ago, and so on.
  void mark(std::size_t place, std::int64_t step, std::int64_t index) {
    const std::int64_t shift = places_[place].shift;
    if (index < 0) {
      const std::int64_t age = -1 - index;
      step += 1 + age / shift;
      index = shift - 1 - age % shift;
    }
    auto& steps = cone_[place];
    if (steps.size() <= static_cast<std::size_t>(step)) {
      steps.resize(static_cast<std::size_t>(step) + 1, std::vector<bool>(size_of(place)));
    }
    steps[static_cast<std::size_t>(step)][static_cast<std::size_t>(index)] = true;
  }

  void follow_step(std::size_t place, std::int64_t step) {
    const std::vector<bool> states = cone_[place][static_cast<std::size_t>(step)];
    for (std::size_t index = 0; index < states.size(); ++index) {
      if (!states[index]) {
        continue;
      }
      if (places_[place].source == Place::Source::kLayer) {
        follow_query(place, step, static_cast<std::int64_t>(index));
      } else if (places_[place].source == Place::Source::kCompressed) {
        follow_pool(place, step, static_cast<std::int64_t>(index));
      } else {
        follow_average(place, step, static_cast<std::int64_t>(index));
      }
    }
  }

  void follow_query(std::size_t place, std::int64_t step, std::int64_t query) {
    const std::size_t number = places_[place].scale;
    const ScaleGeometry& scale =
        number < geometry_.scales.size() ? geometry_.scales[number] : geometry_.output;
    for (const std::int64_t dilation : distinct_dilations(scale.reach)) {
      const std::int64_t count = keys_seen(geometry_, scale, query, dilation);
      for (std::int64_t k = 0; k < count; ++k) {
        const StateRun run = states_at(geometry_, scale, query - k * dilation);
        for (std::int64_t i = 0; i < run.count; ++i) {
          mark(place - 1, step, run.first + i * run.step);
        }
      }
    }
  }

  // The last group of `rate` states ends with the segment.
  void follow_pool(std::size_t place, std::int64_t step, std::int64_t index) {
    const std::int64_t rate = geometry_.rate;
    const std::int64_t first = places_[place - 1].segment - (places_[place].segment - index) * rate;
    for (std::int64_t i = 0; i < rate; ++i) {
      mark(place - 1, step, first + i);
    }
  }

  // Of every scale, the last state whose newest token is not after `token`.
  void follow_average(std::size_t place, std::int64_t step, std::int64_t token) {
    for (std::size_t below = 0; below < place; ++below) {
      const bool output_of_scale = places_[below + 1].scale != places_[below].scale;
      const std::int64_t complete = (token + 1) / places_[below].granularity;
      const std::int64_t index = places_[below].segment - places_[below].shift + complete - 1;
      if (output_of_scale && (index >= 0 || geometry_.recurrent)) {
        mark(below, step, index);
      }
    }
  }

  const Geometry& geometry_;
  std::vector<Place> places_;
  Cone cone_;
};

}  // namespace

std::vector<Place> places(const Geometry& geometry) {
  std::vector<Place> all;
  const auto add = [&](const ScaleGeometry& scale, std::size_t number, Place::Source source) {
    Place place;
    place.source = source;
    place.scale = number;
    place.segment = scale.segment;
    place.granularity = scale.granularity;
    place.shift = scale.shift;
    for (std::int64_t layer = 0; layer < scale.layers; ++layer) {
      place.memory = scale.memory;
      place.compressed_memory = geometry.compressed_memory;
      all.push_back(place);
      place.source = Place::Source::kLayer;
    }
    place.memory = scale.output_memory;
    place.compressed_memory = 0;
    all.push_back(place);
  };
  for (std::size_t i = 0; i < geometry.scales.size(); ++i) {
    add(geometry.scales[i], i, i == 0 ? Place::Source::kTokens : Place::Source::kCompressed);
  }
  if (geometry.accumulates()) {
    // Without output layers the average itself is the output.
    ScaleGeometry output = geometry.scales.front();
    output.layers = geometry.output.layers;
    output.output_memory = 0;
    add(output, geometry.scales.size(), Place::Source::kAveraged);
  }
  return all;
}

Cone cone_of(const Geometry& geometry, std::int64_t position) {
  return Follower(geometry).follow(position);
}

std::int64_t first_token(const Place& place, std::int64_t steps_back, std::int64_t index) {
  const std::int64_t stride = place.shift * place.granularity;
  return stride * (1 - steps_back) - (place.segment - index) * place.granularity;
}

}  // namespace ql::net
