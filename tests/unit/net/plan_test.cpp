// Compares the search for cheap geometries with an oracle that builds every network and every
// length of a small space and compares all pairs.
#include "net/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <tuple>

#include "base/error.h"
#include "unit/net_networks.h"

using namespace ql::net;
using namespace ql::net::testing;

namespace {

constexpr Architecture kAll[] = {Architecture::kTransformerQl, Architecture::kTransformerXl,
                                 Architecture::kCompressive, Architecture::kMultiScale,
                                 Architecture::kVanilla};

// Returns true for 1, 2, 3, 4, 6, 8, 12, ... times `unit`.
bool on_grid(std::int64_t length, std::int64_t unit) {
  std::int64_t value = length / unit;
  if (length % unit != 0 || value < 1) return false;
  while (value % 2 == 0) value /= 2;
  return value == 1 || value == 3;
}

// Returns the shortest length of a grid that is at least `enough`.
std::int64_t last_of_grid(std::int64_t enough, std::int64_t unit) {
  while (!on_grid(enough, unit)) ++enough;
  return enough;
}

bool wanted(const Network& network, const Lengths& lengths, std::int64_t context) {
  const bool compressive = network.architecture == Architecture::kCompressive;
  const bool several = network.scales.size() > 1;
  std::int64_t segment_unit = compressive ? network.rate : 1;
  for (std::size_t scale = 1; scale < network.scales.size(); ++scale) segment_unit *= network.rate;
  const std::int64_t memory_unit = several ? network.rate : 1;
  const std::int64_t enough = std::max(context, lengths.segment);
  const bool segment =
      on_grid(lengths.segment, segment_unit) && lengths.segment <= std::max(context, segment_unit);
  const bool memory = (several && lengths.memory == 0) ||
                      (on_grid(lengths.memory, memory_unit) && lengths.memory >= lengths.segment &&
                       lengths.memory <= last_of_grid(enough, memory_unit));
  const bool compressed = compressive
                              ? on_grid(lengths.compressed_memory, 1) &&
                                    lengths.compressed_memory >= lengths.segment / network.rate &&
                                    lengths.compressed_memory <= last_of_grid(enough, 1)
                              : lengths.compressed_memory == 0;
  return segment && memory && compressed;
}

std::int64_t operations(const Plan& plan) {
  return std::llround(plan.cost.forward_flops_per_token);
}

bool undercuts(const Plan& a, const Plan& b) {
  return operations(a) <= operations(b) && a.cost.memory_states <= b.cost.memory_states &&
         (operations(a) < operations(b) || a.cost.memory_states < b.cost.memory_states);
}

// Returns every plan that reaches `context`, at any cost.
std::vector<Plan> enumerate(const std::vector<Network>& networks, std::int64_t context) {
  const std::int64_t most = 2 * context + 8;
  std::vector<Plan> plans;
  for (const Network& network : networks) {
    const bool compressive = network.architecture == Architecture::kCompressive;
    for (std::int64_t segment = 1; segment <= most; ++segment) {
      for (std::int64_t memory = 0; memory <= most; ++memory) {
        for (std::int64_t compressed = 0; compressed <= (compressive ? most : 0); ++compressed) {
          const Lengths lengths{segment, memory, compressed};
          if (!wanted(network, lengths, context) ||
              !(nearest_valid_lengths(network, lengths).front() == lengths)) {
            continue;
          }
          const ContextLength reached = exact_context(network, lengths);
          if (reached.minimum >= context) {
            plans.push_back({network, lengths, reached, cost(network, lengths)});
          }
        }
      }
    }
  }
  return plans;
}

std::vector<Plan> cheapest_of(const std::vector<Plan>& all) {
  std::vector<Plan> best;
  for (const Plan& plan : all) {
    if (std::none_of(all.begin(), all.end(),
                     [&](const Plan& other) { return undercuts(other, plan); })) {
      best.push_back(plan);
    }
  }
  // Among equal costs the order is: fewer scales, more layers at fine scales, a smaller rate, a
  // shorter segment, a longer memory.
  const auto key = [](const Plan& plan) {
    std::vector<std::int64_t> layers;
    for (const std::int64_t here : plan.network.scales) layers.push_back(-here);
    return std::make_tuple(operations(plan), plan.cost.memory_states, plan.network.scales.size(),
                           layers, plan.network.rate, plan.lengths.segment, -plan.lengths.memory);
  };
  std::sort(best.begin(), best.end(),
            [&](const Plan& a, const Plan& b) { return key(a) < key(b); });
  const auto same_price = [](const Plan& a, const Plan& b) {
    return operations(a) == operations(b) && a.cost.memory_states == b.cost.memory_states;
  };
  best.erase(std::unique(best.begin(), best.end(), same_price), best.end());
  return best;
}

void compare(const std::vector<Plan>& found, const std::vector<Plan>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(found[i].network.scales == expected[i].network.scales);
    CHECK(found[i].network.output_layers == expected[i].network.output_layers);
    CHECK(found[i].network.rate == expected[i].network.rate);
    CHECK(found[i].lengths == expected[i].lengths);
    CHECK(found[i].context.minimum == expected[i].context.minimum);
    CHECK(found[i].cost.memory_states == expected[i].cost.memory_states);
  }
}

}  // namespace

TEST_CASE("cheapest_plans: the cheapest plans equal those of an enumeration") {
  for (const Architecture architecture : kAll) {
    for (const std::int64_t layers : {2, 4}) {
      for (const std::int64_t context : {1, 7, 24, 41}) {
        const std::string name = to_text(architecture);
        CAPTURE(name);
        CAPTURE(layers);
        CAPTURE(context);
        const std::vector<Network> networks =
            divisions_of_layers(with_sizes({}), architecture, layers, {2, 3});
        compare(cheapest_plans(networks, context), cheapest_of(enumerate(networks, context)));
      }
    }
  }
}

// The oracle tries all lengths, keeps the longest memory of every network and segment (and memory,
// for Compressive) that `operations` allow, and compares all pairs of what is kept.
static std::vector<Plan> longest_of(const std::vector<Network>& networks, double operations) {
  constexpr std::int64_t kMost = 96;  // every longer one costs too much in this test
  std::vector<Plan> longest;
  for (const Network& network : networks) {
    if (!keeps_memory(network.architecture)) continue;
    const bool compressive = network.architecture == Architecture::kCompressive;
    for (std::int64_t segment = 1; segment <= kMost; ++segment) {
      std::vector<Plan> of_segment;
      for (std::int64_t memory = 0; memory <= kMost; ++memory) {
        if (compressive) of_segment.clear();
        for (std::int64_t compressed = 0; compressed <= (compressive ? kMost : 0); ++compressed) {
          const Lengths lengths{segment, memory, compressed};
          if (!wanted(network, lengths, 4 * kMost) ||
              !(nearest_valid_lengths(network, lengths).front() == lengths)) {
            continue;
          }
          const Cost price = cost(network, lengths);
          if (price.training_flops_per_token > operations) continue;
          REQUIRE(std::max({segment, memory, compressed}) < kMost);
          of_segment = {{network, lengths, exact_context(network, lengths), price}};
        }
        if (compressive) longest.insert(longest.end(), of_segment.begin(), of_segment.end());
      }
      if (!compressive) longest.insert(longest.end(), of_segment.begin(), of_segment.end());
    }
  }
  std::vector<Plan> best;
  const auto training = [](const Plan& plan) { return plan.cost.training_flops_per_token; };
  for (const Plan& plan : longest) {
    const auto undercuts_plan = [&](const Plan& other) {
      return other.context.minimum >= plan.context.minimum && training(other) <= training(plan) &&
             (other.context.minimum > plan.context.minimum || training(other) < training(plan));
    };
    if (plan.context.minimum > 0 && std::none_of(longest.begin(), longest.end(), undercuts_plan)) {
      best.push_back(plan);
    }
  }
  std::stable_sort(best.begin(), best.end(), [](const Plan& a, const Plan& b) {
    return a.context.minimum > b.context.minimum;
  });
  return best;
}

TEST_CASE("longest_plans: the plans with the longest contexts equal those of an enumeration") {
  Network small = with_sizes({});
  small.vocab_size = 7;
  small.d_model = 4;
  small.n_head = 1;
  small.d_head = 4;
  small.d_inner = 4;
  for (const Architecture architecture : kAll) {
    const std::string name = to_text(architecture);
    CAPTURE(name);
    const std::vector<Network> networks = divisions_of_layers(small, architecture, 4, {2, 3});
    for (const double operations : {5000., 9000.}) {
      CAPTURE(operations);
      const std::vector<Plan> expected = longest_of(networks, operations);
      const std::vector<Plan> found = longest_plans(networks, operations, 1000);
      CHECK(expected.empty() != keeps_memory(architecture));
      REQUIRE(found.size() <= expected.size());
      // The oracle has several plans of equal context and operations where longest_plans() has one.
      std::size_t next = 0;
      for (const Plan& plan : expected) {
        const auto equal = [&](const Plan& other) {
          return other.context.minimum == plan.context.minimum &&
                 other.cost.training_flops_per_token == plan.cost.training_flops_per_token;
        };
        if (next < found.size() && equal(found[next])) ++next;
        CHECK((next > 0 && equal(found[next - 1])));
      }
      CHECK(next == found.size());
      const std::vector<Plan> first = longest_plans(networks, operations, 2);
      compare(first, {found.begin(), found.begin() + std::min<std::size_t>(2, found.size())});
    }
  }
}

TEST_CASE("longest_plans: no longer memory than attention_window can use") {
  Network network = with_sizes(xl(4));
  network.attention_window = 5;
  const std::vector<Plan> found = longest_plans({network}, 1e12, 1, {2});
  REQUIRE(found.size() == 1);
  CHECK(found.front().lengths == Lengths{2, 4, 0});
  CHECK(found.front().context.minimum == exact_context(network, {2, 1024, 0}).minimum);
}

TEST_CASE("divisions_of_layers: with scale_widths, networks of several scales have these widths") {
  Network network = with_sizes({});
  network.scale_widths = {network.d_model, 2 * network.d_model};
  const std::vector<Network> divisions =
      divisions_of_layers(network, Architecture::kTransformerQl, 6, {2, 4});
  CHECK(divisions.size() > 2);
  for (const Network& division : divisions) {
    CHECK(division.scales.size() == 2);
    CHECK(division.scale_widths == network.scale_widths);
    CHECK_NOTHROW(division.check("test"));
  }
  const std::vector<Network> xl =
      divisions_of_layers(network, Architecture::kTransformerXl, 6, {2});
  REQUIRE(xl.size() == 1);
  CHECK(xl.front().scale_widths.empty());
}

TEST_CASE("cheapest_plans: plans of networks with limited windows are those of the enumeration") {
  Network network = with_sizes({});
  network.attention_window = 6;
  for (const Architecture architecture :
       {Architecture::kTransformerQl, Architecture::kTransformerXl, Architecture::kCompressive}) {
    const std::vector<Network> networks = divisions_of_layers(network, architecture, 4, {2});
    compare(cheapest_plans(networks, 15), cheapest_of(enumerate(networks, 15)));
  }
  // Two heads see every second and every fourth key only.
  network.n_head = 3;
  network.d_head = 8;
  network.attention_window = 4;
  network.attention_dilation = {1, 2, 4};
  for (const std::int64_t context : {15, 40}) {
    const std::vector<Network> dilated =
        divisions_of_layers(network, Architecture::kTransformerXl, 4, {2});
    compare(cheapest_plans(dilated, context), cheapest_of(enumerate(dilated, context)));
  }
  network.attention_dilation = {};
  network.attention_window = 0;
  network.same_length = true;
  const std::vector<Network> networks =
      divisions_of_layers(network, Architecture::kTransformerQl, 4, {2});
  compare(cheapest_plans(networks, 15), cheapest_of(enumerate(networks, 15)));
}

TEST_CASE("cheapest_plans: given segments replace the grid") {
  const std::vector<Network> networks =
      divisions_of_layers(with_sizes({}), Architecture::kTransformerQl, 4, {2, 3});
  const std::vector<Plan> plans = cheapest_plans(networks, 41, {8, 7});
  REQUIRE_FALSE(plans.empty());
  for (const Plan& plan : plans) {
    CHECK(plan.lengths.segment == 8);  // no network with scales allows 7
    CHECK(plan.network.rate == 2);
  }
  std::vector<Plan> all = enumerate(networks, 41);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const Plan& plan) { return plan.lengths.segment != 8; }),
            all.end());
  compare(plans, cheapest_of(all));
}

TEST_CASE("cheapest_plans: every plan reaches its context and costs what cost() says") {
  for (const Architecture architecture : kAll) {
    const std::vector<Network> networks =
        divisions_of_layers(with_sizes({}), architecture, 8, {2, 4});
    for (const std::int64_t context : {1, 100, 300, 5000}) {
      const std::vector<Plan> plans = cheapest_plans(networks, context);
      const bool recurrent =
          architecture != Architecture::kMultiScale && architecture != Architecture::kVanilla;
      CHECK(plans.empty() != recurrent);
      for (std::size_t i = 0; i < plans.size(); ++i) {
        const Plan& plan = plans[i];
        const ContextLength exact = exact_context(plan.network, plan.lengths);
        CHECK(exact.minimum >= context);
        CHECK(plan.context.minimum == exact.minimum);
        CHECK(plan.context.maximum == exact.maximum);
        CHECK(plan.network.layers() == 8);
        const Cost expected = cost(plan.network, plan.lengths);
        CHECK(plan.cost.forward_flops_per_token == expected.forward_flops_per_token);
        CHECK(plan.cost.memory_states == expected.memory_states);
        CHECK(plan.cost.parameters == expected.parameters);
        if (i > 0) {
          CHECK(operations(plans[i - 1]) < operations(plan));
          CHECK(plans[i - 1].cost.memory_states > plan.cost.memory_states);
        }
      }
    }
  }
}

TEST_CASE("divisions_of_layers: a network's settings fit every architecture") {
  Network network = with_sizes(compressive(8));
  network.pool = Pool::kConvolution;
  network.droppath = 0.3;
  network.query_only_pooling = network.learned_join = true;
  for (const Architecture architecture : kAll) {
    for (const Network& division : divisions_of_layers(network, architecture, 8, {2})) {
      division.check();
      CHECK(division.pool ==
            (architecture == Architecture::kCompressive ? Pool::kConvolution : Pool::kMax));
      CHECK(division.droppath == (division.scales.size() > 1 ? 0.3 : 0.0));
      CHECK(division.query_only_pooling == (division.scales.size() > 1));
      CHECK(division.learned_join == (division.scales.size() > 1));
    }
  }
}

TEST_CASE("divisions_of_layers: layers are divided in every way, once") {
  const auto count = [](Architecture architecture, const std::vector<std::int64_t>& rates) {
    return divisions_of_layers(with_sizes({}), architecture, 8, rates).size();
  };
  // 8 layers have at least one at each of two or three scales, and the others anywhere: C(8, 2) +
  // C(8, 3).
  CHECK(count(Architecture::kTransformerQl, {2}) == 28 + 56);
  CHECK(count(Architecture::kMultiScale, {2, 4}) == 2 * (28 + 56));
  CHECK(count(Architecture::kCompressive, {2, 4}) == 2);
  CHECK(count(Architecture::kTransformerXl, {2, 4}) == 1);
  CHECK(divisions_of_layers(with_sizes({}), Architecture::kTransformerQl, 1, {2}).empty());
  std::vector<std::vector<std::int64_t>> seen;
  for (const Network& network :
       divisions_of_layers(with_sizes({}), Architecture::kTransformerQl, 8, {2})) {
    network.check();
    CHECK(network.layers() == 8);
    CHECK(std::find(seen.begin(), seen.end(), network.scales) == seen.end());
    seen.push_back(network.scales);
  }
}

// Returns the processor time of `work` in seconds, because other programs may be busy.
template <typename Work>
double seconds_of(const Work& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST_CASE("cheapest_plans, longest_plans: the search tries few lengths, for any context and cost") {
  std::vector<Network> networks;
  for (const Architecture architecture : kAll) {
    for (const Network& network : divisions_of_layers(with_sizes({}), architecture, 8, {2, 3, 4})) {
      networks.push_back(network);
    }
  }
  // Machines and sanitizers differ, so the unit of time is one cost() of each network. The slowest
  // search takes 1,500 of them, and 700 with sanitizers.
  constexpr int kRepeats = 20;
  constexpr double kMostUnits = 8000;
  const double unit = seconds_of([&] {
                        for (int i = 0; i < kRepeats; ++i) {
                          for (const Network& network : networks) {
                            cost(network, nearest_valid_lengths(network, {64, 64, 64}).front());
                          }
                        }
                      }) /
                      kRepeats;
  std::vector<Plan> plans;
  for (const std::int64_t context :
       {std::int64_t{1000}, std::int64_t{100000}, kMaxPlannedContext}) {
    CAPTURE(context);
    const double seconds = seconds_of([&] { plans = cheapest_plans(networks, context); });
    CHECK(seconds < kMostUnits * unit);
    CHECK_FALSE(plans.empty());
    for (const Plan& plan : plans) CHECK(plan.context.minimum >= context);
  }
  for (const double operations : {50e6, 200e6, 1e12}) {
    CAPTURE(operations);
    const double seconds = seconds_of([&] { plans = longest_plans(networks, operations, 5); });
    CHECK(seconds < kMostUnits * unit);
    CHECK_FALSE(plans.empty());
    for (const Plan& plan : plans) CHECK(plan.cost.training_flops_per_token <= operations);
  }
}

TEST_CASE("cheapest_plans: contexts outside the allowed range") {
  const std::vector<Network> networks{with_sizes(paper_ql())};
  CHECK_THROWS_AS(cheapest_plans(networks, 0), ql::ConfigError);
  CHECK_THROWS_AS(cheapest_plans(networks, kMaxPlannedContext + 1), ql::ConfigError);
  CHECK_THROWS_AS(cheapest_plans({Network{}}, 8), ql::ConfigError);
  CHECK(longest_plans(networks, 1e9, 0).empty());
}
