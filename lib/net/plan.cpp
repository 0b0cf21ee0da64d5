// Finds the cheapest networks and lengths for a context: divides layers into scales, tries lengths,
// and keeps the choices that no other choice beats in operations and memory.

#include "net/plan.h"

#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/process.h"

namespace ql::net {
namespace {

// Appends all ways to distribute `layers` layers over `scales` further scales, with at least one
// layer in each scale; the remaining layers form the output block.
void divide(Network& network, std::int64_t layers, std::size_t scales,
            std::vector<Network>& divisions) {
  if (scales == 0) {
    network.output_layers = layers;
    divisions.push_back(network);
    return;
  }
  const auto others = static_cast<std::int64_t>(scales) - 1;
  for (std::int64_t here = 1; here <= layers - others; ++here) {
    network.scales.push_back(here);
    divide(network, layers - here, scales - 1, divisions);
    network.scales.pop_back();
  }
}

// Returns 1, 2, 3, 4, 6, 8, 12, ... times `unit`, from `minimum` on until `enough` is reached.
std::vector<std::int64_t> grid(std::int64_t unit, std::int64_t minimum, std::int64_t enough) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t power = 1; lengths.empty() || lengths.back() < enough; power *= 2) {
    for (const std::int64_t value : {power, power + power / 2}) {
      const std::int64_t length = value * unit;
      if (length > kMaxLength) return lengths;
      const bool wanted =
          lengths.empty() || (lengths.back() < enough && lengths.back() < length);  // 1 comes twice
      if (wanted && length >= minimum) {
        lengths.push_back(length);
      }
    }
  }
  return lengths;
}

// Price is a pair: operations (rounded as printed) and memory states.
using Price = std::pair<double, std::int64_t>;

Price price_of(const Cost& cost) {
  return {std::round(cost.forward_flops_per_token), cost.memory_states};
}

// Returns true when `price` dominates `other`: one of its parts is lower, and the other part is not
// higher.
bool undercuts(const Price& price, const Price& other) {
  return price.first <= other.first && price.second <= other.second && price != other;
}

// Compares plans of equal cost. Returns true when cheapest_plans() prefers plan `a` to plan `b`.
bool preferred(const Plan& a, const Plan& b) {
  // The lower rank is preferred, but the greater `scales` (more layers at fine scales). So each
  // rank has the other plan's `scales`.
  const auto rank = [](const Plan& plan, const Plan& other) {
    return std::make_tuple(plan.network.scales.size(), other.network.scales, plan.network.rate,
                           plan.lengths.segment, -plan.lengths.memory,
                           plan.lengths.compressed_memory);
  };
  return rank(a, b) < rank(b, a);
}

// Keeps the Pareto front of the plans so far, sorted by operations, then memory.
class Front {
 public:
  // Returns true when no plan of the front dominates this price. A plan of equal price does not
  // dominate it.
  bool admits(const Price& price) const {
    return std::none_of(plans_.begin(), plans_.end(),
                        [&](const auto& other) { return undercuts(other.first, price); });
  }

  // Requires that admits() returns true for the plan's price.
  void add(const Plan& plan) {
    const Price price = price_of(plan.cost);
    const auto [same, is_new] = plans_.try_emplace(price, plan);
    if (!is_new && preferred(plan, same->second)) same->second = plan;
    for (auto other = plans_.begin(); other != plans_.end();) {
      other = undercuts(price, other->first) ? plans_.erase(other) : std::next(other);
    }
  }

  std::vector<Plan> cheapest_first() const {
    std::vector<Plan> sorted;
    for (const auto& [price, plan] : plans_) sorted.push_back(plan);
    return sorted;
  }

 private:
  std::map<Price, Plan> plans_;
};

// Holds combinations of lengths for one network, in which only one length differs and increases:
// the memory, or for Compressive the compressed memory. Only the first combination that reaches the
// context matters, because later ones cost more.
struct Chain {
  const Network* network = nullptr;
  std::vector<Lengths> lengths;
  std::int64_t least_operations = 0;
};

std::vector<Chain> chains_of(const Network& network, std::int64_t context,
                             const std::vector<std::int64_t>& segments) {
  const bool compressive = network.architecture == Architecture::kCompressive;
  const bool several = network.scales.size() > 1;
  const std::vector<Lengths> shortest = nearest_valid_lengths(network, {});
  if (shortest.empty()) return {};
  const std::int64_t segment_unit = shortest.front().segment;
  std::vector<Chain> chains;
  const std::int64_t longest = std::max(context, segment_unit);
  for (const std::int64_t segment : segments.empty() ? grid(segment_unit, 1, context) : segments) {
    const bool fits = segment >= 1 && segment <= kMaxLength && segment % segment_unit == 0;
    if (!fits || (segments.empty() && segment > longest)) continue;
    const std::int64_t enough = std::max(context, segment);
    std::vector<std::int64_t> memories = grid(several ? network.rate : 1, segment, enough);
    if (several && !network.same_length) memories.insert(memories.begin(), 0);
    const std::vector<std::int64_t> none = {0};
    std::vector<Lengths> chain;
    for (const std::int64_t memory : memories) {
      for (const std::int64_t compressed :
           compressive ? grid(1, segment / network.rate, enough) : none) {
        chain.push_back({segment, memory, compressed});
      }
      if (chain.empty() || !(compressive || memory == memories.back())) continue;
      const std::int64_t operations = price_of(cost(network, chain.front())).first;
      chains.push_back({&network, std::exchange(chain, {}), operations});
    }
  }
  return chains;
}

std::vector<Chain> chains_of(const std::vector<Network>& networks, std::int64_t context,
                             const std::vector<std::int64_t>& segments) {
  std::vector<Chain> chains;
  for (const Network& network : networks) {
    check_for_stop();
    network.check();
    // A network without a memory cannot reach `context`, because the first position of a segment
    // sees no earlier token.
    if (keeps_memory(network.architecture)) {
      const std::vector<Chain> own = chains_of(network, context, segments);
      chains.insert(chains.end(), own.begin(), own.end());
    }
  }
  return chains;
}

// Returns an upper bound of the exact context. The bound is fast to compute. Exact context lengths
// take long when many layers have limited windows.
double most_context(const Geometry& geometry) {
  double tokens = static_cast<double>(geometry.lengths.segment);
  for (const Stage& stage : geometry.stages) {
    // No operation reads states of this stage that are more than `farthest` states back. This value
    // holds for compression and averages. A layer has another value (below).
    std::int64_t farthest = stage.window() * geometry.rate;
    if (stage.feeds_layer()) {
      farthest = stage.window();
      if (stage.span > 0) {
        farthest = std::min(farthest, (stage.span - 1) * geometry.dilations.back());
      }
    }
    if (stage.compressed_memory > 0) {
      // This adds `rate` states for each of at most `farthest` compressed keys, and `segment`
      // states, because a key may depend on all states that were compressed in its step.
      farthest = farthest * (geometry.rate + 1) + stage.segment;
    }
    tokens += static_cast<double>(farthest) * static_cast<double>(stage.stride);
  }
  return tokens;
}

// Finds the first lengths of `chain` that reach `context` tokens, and adds their plan to the Pareto
// front `front`. Adds nothing if a plan of `front` dominates this plan.
void search(const Chain& chain, std::int64_t context, Front& front) {
  for (const Lengths& lengths : chain.lengths) {
    check_for_stop();
    const Cost price = cost(*chain.network, lengths);
    if (!front.admits(price_of(price))) return;
    if (most_context(make_geometry(*chain.network, lengths)) < static_cast<double>(context)) {
      continue;
    }
    const ContextLength reached = exact_context(*chain.network, lengths);
    if (reached.minimum >= context) {
      front.add({*chain.network, lengths, reached, price});
      return;
    }
  }
}

// Lengths that a training can pay for, with an upper bound of their context.
struct Candidate {
  const Chain* chain = nullptr;
  std::size_t index = 0;  // of the lengths in the chain
  double most_context = 0;
};

// Returns the last lengths of `chain` that need at most `operations` and have a most_context() of
// at most kMaxPlannedContext. Without an attention_window no earlier ones have a longer context.
std::optional<Candidate> last_affordable(const Chain& chain, double operations) {
  std::optional<Candidate> last;
  for (std::size_t i = 0; i < chain.lengths.size(); ++i) {
    const Cost price = cost(*chain.network, chain.lengths[i]);
    const double most = most_context(make_geometry(*chain.network, chain.lengths[i]));
    if (price.training_flops_per_token > operations || most > kMaxPlannedContext) break;
    last = {&chain, i, most};
  }
  return last;
}

// Returns the plan of the candidate's lengths, which have the exact `context`. With an
// attention_window, longer memories may add nothing to the context, and then this is the plan of
// the first lengths that reach as far. Short memories are tried first, because they take least
// time.
Plan plan_of(const Candidate& candidate, ContextLength context) {
  const Network& network = *candidate.chain->network;
  const std::vector<Lengths>& lengths = candidate.chain->lengths;
  std::size_t reached = candidate.index;
  if (network.attention_window > 0) {
    const std::int64_t minimum = context.minimum;
    const auto reaches = [&](std::size_t index) {
      return exact_context(network, lengths[index]).minimum >= minimum;
    };
    std::size_t first = 0, tried = 0;  // all before `first` reach less
    while (tried < reached && !reaches(tried)) {
      first = tried + 1;
      tried = 2 * tried + 1;
    }
    reached = std::min(reached, tried);
    while (first < reached) {
      const std::size_t middle = (first + reached) / 2;
      if (reaches(middle)) {
        reached = middle;
      } else {
        first = middle + 1;
      }
    }
    if (reached < candidate.index) context = exact_context(network, lengths[reached]);
  }
  return {network, lengths[reached], context, cost(network, lengths[reached])};
}

// Resets the settings that the network's architecture does not allow, and always scale_widths.
void make_possible(Network& network) {
  if (network.architecture != Architecture::kCompressive) {
    if (!row_of(network.pool).has(PoolRow::kScales)) network.pool = Pool::kMax;
    network.compression_loss = CompressionLoss::kAttentionReconstruction;
  }
  const bool of_places = row_of(network.encoding).has(EncodingRow::kPlaces);
  if (of_places && network.architecture != Architecture::kVanilla) {
    network.encoding = Encoding::kTransformerXl;
  }
  network.scale_widths.clear();
  network.query_only_pooling = network.query_only_pooling && has_scales(network.architecture);
  network.learned_join = network.learned_join && has_scales(network.architecture);
  if (!keeps_memory(network.architecture)) {
    network.same_length = false;
    network.reset_memory_at_documents = false;
  }
}

}  // namespace

std::vector<Network> divisions_of_layers(const Network& network, Architecture architecture,
                                         std::int64_t layers,
                                         const std::vector<std::int64_t>& rates) {
  std::vector<Network> divisions;
  Network division = network;
  division.architecture = architecture;
  division.output_layers = 0;
  make_possible(division);
  if (!has_scales(architecture)) {
    division.scales = {layers};
    division.droppath = 0;
    const bool compresses = architecture == Architecture::kCompressive;
    for (const std::int64_t rate : compresses ? rates : std::vector{network.rate}) {
      division.rate = rate;
      divisions.push_back(division);
    }
    return divisions;
  }
  for (const std::int64_t rate : rates) {
    division.rate = rate;
    for (std::size_t scales = 2; scales <= kMaxPlannedScales; ++scales) {
      if (!network.scale_widths.empty() && network.scale_widths.size() != scales) continue;
      division.scale_widths = network.scale_widths;
      division.scales.clear();
      divide(division, layers, scales, divisions);
    }
  }
  return divisions;
}

std::vector<Plan> cheapest_plans(const std::vector<Network>& networks, std::int64_t context,
                                 const std::vector<std::int64_t>& segments) {
  if (context < 1 || context > kMaxPlannedContext) {
    throw ConfigError("context",
                      fmt::format("expected 1 to {}, found {}", kMaxPlannedContext, context));
  }
  std::vector<Chain> chains = chains_of(networks, context, segments);
  // Each chain is a series of lengths for one network. Cheap chains are searched first: when the
  // others follow, many of their lengths cost more than a known plan, and search() does not compute
  // the exact context of these lengths, which takes longest.
  std::stable_sort(chains.begin(), chains.end(), [](const Chain& a, const Chain& b) {
    return a.least_operations < b.least_operations;
  });
  Front front;
  for (const Chain& chain : chains) search(chain, context, front);
  return front.cheapest_first();
}

std::vector<Plan> longest_plans(const std::vector<Network>& networks, double operations,
                                std::size_t limit, const std::vector<std::int64_t>& segments) {
  const std::vector<Chain> chains = chains_of(networks, kMaxPlannedContext, segments);
  std::vector<Candidate> candidates;
  for (const Chain& chain : chains) {
    check_for_stop();
    if (const auto last = last_affordable(chain, operations)) candidates.push_back(*last);
  }
  // Exact contexts take longest to compute, so those that can be longest come first: most others
  // then need none.
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.most_context > b.most_context; });
  const auto training = [](const Plan& plan) { return plan.cost.training_flops_per_token; };
  std::vector<Plan> longest;  // none dominates another; the longest context comes first
  for (const Candidate& candidate : candidates) {
    check_for_stop();
    const auto longer = [&](const Plan& plan) {
      return static_cast<double>(plan.context.minimum) > candidate.most_context;
    };
    if (limit == 0 || (longest.size() >= limit && longer(longest[limit - 1]))) break;
    const Network& network = *candidate.chain->network;
    const ContextLength context = exact_context(network, candidate.chain->lengths[candidate.index]);
    const double least = cost(network, candidate.chain->lengths.front()).training_flops_per_token;
    const bool is_worse = std::any_of(longest.begin(), longest.end(), [&](const Plan& other) {
      return other.context.minimum >= context.minimum && training(other) < least;
    });
    if (is_worse) continue;
    const Plan plan = plan_of(candidate, context);
    if (plan.context.minimum < 1) continue;
    longest.push_back(plan);
    std::sort(longest.begin(), longest.end(), [&](const Plan& a, const Plan& b) {
      if (a.context.minimum != b.context.minimum) return a.context.minimum > b.context.minimum;
      return training(a) != training(b) ? training(a) < training(b) : preferred(a, b);
    });
    std::vector<Plan> front;  // each plan is cheaper than those with a longer context
    for (const Plan& each : longest) {
      if (front.empty() || training(each) < training(front.back())) front.push_back(each);
    }
    longest = front;
  }
  longest.erase(longest.begin() + std::min(limit, longest.size()), longest.end());
  return longest;
}

}  // namespace ql::net
