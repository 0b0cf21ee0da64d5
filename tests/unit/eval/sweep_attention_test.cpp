// The attention map of an evaluation is the mean over the queries of scored targets. The network on
// one page computes it a second time, query by query, for every way of reading a stream.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "eval/scorers.h"
#include "nn/measure.h"
#include "unit/eval_support.h"
#include "unit/network_on_one_page.h"

namespace ql::eval {
namespace {

using test::NetworkOnOnePage;
using test::small_network;

// The sums of probabilities, and the queries, by layer, head and distance in states.
struct Sums {
  struct Sum {
    double probability = 0;
    std::int64_t queries = 0;
  };
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Sum> sums;
};

// Returns the tokens that a state of each layer covers.
std::vector<std::int64_t> tokens_of_states(const net::Network& network) {
  std::vector<std::int64_t> tokens;
  std::int64_t stride = 1;
  for (const std::int64_t layers : network.scales) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(layers), stride);
    stride *= network.rate;
  }
  tokens.insert(tokens.end(), static_cast<std::size_t>(network.output_layers), 1);
  return tokens;
}

// Reads `inputs` from empty memory and adds the queries of the positions in `scored`. A query
// belongs to the newest token that its state covers. Documents start at `documents`.
void add_by_page(const nn::Model& model, Ids inputs, const std::set<std::int64_t>& scored,
                 const Ids& documents, Sums& sums) {
  const net::Network& network = model.network();
  const std::int64_t segment = network.lengths.segment;
  while (static_cast<std::int64_t>(inputs.size()) % segment != 0) inputs.push_back(0);
  const std::vector<std::int64_t> tokens = tokens_of_states(network);
  NetworkOnOnePage page{network, {}};
  for (const nn::NamedTensor& parameter : model.parameters()) {
    page.weights[parameter.name] = parameter.tensor.detach();
  }
  page.dropout = [&](const at::Tensor& share, nn::DropoutSite site, std::int64_t step) {
    if (site.kind != nn::DropoutSite::kAttentionProbability) return share;
    const std::int64_t heads = share.size(0), queries = share.size(1), keys = share.size(2);
    for (std::int64_t query = 0; query < queries; ++query) {
      const std::int64_t newest =
          (step + 1) * segment - 1 -
          (queries - 1 - query) * tokens.at(static_cast<std::size_t>(site.layer));
      // A state that is computed again had its query in an earlier step.
      if (newest < step * segment || scored.count(newest) == 0) continue;
      const std::int64_t own = keys - queries + query;
      for (std::int64_t head = 0; head < heads; ++head) {
        const at::Tensor row = share[head][query].contiguous();
        for (std::int64_t key = 0; key <= own; ++key) {
          Sums::Sum& sum = sums.sums[{site.layer, head, own - key}];
          sum.probability += row.data_ptr<double>()[key];
          ++sum.queries;
        }
      }
    }
    return share;
  };
  page.read(network.lengths, inputs, documents);
}

std::set<std::int64_t> positions(std::int64_t first, std::int64_t end) {
  std::set<std::int64_t> all;
  for (; first < end; ++first) all.insert(first);
  return all;
}

// Requires the map to have the same means over as many queries.
void check_map(const nn::AttentionMap& map, const Sums& expected) {
  std::size_t seen = 0;
  for (const nn::AttentionMap::Distance& distance : map.distances()) {
    CAPTURE(distance.stage->layer);
    CAPTURE(distance.head);
    CAPTURE(distance.states);
    const auto found = expected.sums.find({distance.stage->layer, distance.head, distance.states});
    REQUIRE(distance.queries == (found == expected.sums.end() ? 0 : found->second.queries));
    if (distance.queries == 0) continue;
    ++seen;
    const Sums::Sum& sum = found->second;
    CHECK(distance.probability ==
          doctest::Approx(sum.probability / static_cast<double>(sum.queries)).epsilon(1e-9));
  }
  CHECK(seen == expected.sums.size());
}

const Ids kStartsOfDocuments{0, 5, 6, 16, 33};
const Ids& starts_of_documents() { return kStartsOfDocuments; }

nn::AttentionMap map_of(const nn::Model& model, const Ids& ids, const Reading& reading,
                        std::int64_t first_target = 0) {
  nn::AttentionMap map(model.network(),
                       net::make_geometry(model.network(), model.network().lengths));
  EvaluationOptions options;
  static_cast<Reading&>(options) = reading;
  options.lengths = model.network().lengths;
  options.first_target = first_target;
  options.attention_map = &map;
  evaluate(model, source_from(ids, starts_of_documents), options);
  return map;
}

std::vector<net::Network> networks_with_maps() {
  net::Network resets = small_network(test::kQl, {1, 1}, 1, {4, 4, 0});
  resets.reset_memory_at_documents = true;
  net::Network most_used = small_network(test::kCompressive, {2}, 0, {4, 4, 2});
  most_used.pool = net::Pool::kMostUsed;
  return {
      small_network(test::kXl, {2}, 0, {3, 5, 0}),
      small_network(test::kQl, {1, 1}, 1, {4, 4, 0}),     // computes states again
      small_network(test::kQl, {1, 1, 1}, 1, {8, 4, 0}),  // computes none again, and pools twice
      small_network(test::kMultiScale, {1, 1}, 1, {8, 0, 0}),
      small_network(net::Architecture::kVanilla, {2}, 0, {6, 0, 0}),
      small_network(test::kCompressive, {2}, 0, {4, 4, 2}),
      most_used,
      resets};
}

// Calls use(network, model) for all networks of the family.
template <typename Use>
void for_networks_with_maps(const Use& use) {
  for (const net::Network& network : networks_with_maps()) {
    CAPTURE(net::network_to_json(network).dump());
    use(network, test::random_model(network, 3));
  }
}

}  // namespace

TEST_CASE("AttentionMap: counts the queries of a stream's targets, and no padding") {
  for_networks_with_maps([](const net::Network& network, const nn::Model& model) {
    for (const std::int64_t size : {2, 6, 25, 41}) {
      const Ids ids = random_ids(size, network.vocab_size);
      for (const std::int64_t first_target : {0, 3, 18}) {
        Sums expected;
        add_by_page(model, ids, positions(std::max<std::int64_t>(0, first_target - 1), size - 1),
                    starts_of_documents(), expected);
        for (const std::int64_t chunk : {1, 11, 1000}) {
          CAPTURE(size);
          CAPTURE(first_target);
          CAPTURE(chunk);
          check_map(map_of(model, ids, {0, chunk, 0, 0}, first_target), expected);
        }
      }
    }
  });
}

TEST_CASE("AttentionMap: counts as many queries if memory is emptied") {
  for_networks_with_maps([](const net::Network& network, const nn::Model& model) {
    if (network.reset_memory_at_documents) return;
    const Ids ids = random_ids(41, network.vocab_size);
    for (const std::int64_t reset : {1, 2, 7, 8, 30}) {
      Sums expected;
      for (std::int64_t begin = 0; begin < 40; begin += reset) {
        const std::int64_t end = std::min<std::int64_t>(begin + reset, 40);
        add_by_page(model, {ids.begin() + begin, ids.begin() + end}, positions(0, end - begin), {},
                    expected);
      }
      for (const std::int64_t chunk : {1, 11, 1000}) {
        CAPTURE(reset);
        CAPTURE(chunk);
        check_map(map_of(model, ids, {0, chunk, 0, reset}), expected);
      }
    }
  });
}

TEST_CASE("AttentionMap: counts no query of the context of a sliding window") {
  for_networks_with_maps([](const net::Network& network, const nn::Model& model) {
    if (has_memory(net::make_geometry(network, network.lengths))) return;
    const std::int64_t segment = network.lengths.segment;
    for (const std::int64_t size : {std::int64_t{3}, segment, segment + 1, std::int64_t{33}}) {
      const Ids ids = random_ids(size, network.vocab_size);
      for (const std::int64_t stride : {std::int64_t{1}, std::int64_t{3}, segment - 1, segment}) {
        Sums expected;
        std::int64_t next = 0;  // the first input that no window has scored
        for (std::int64_t begin = 0; next < size - 1; begin += stride) {
          const std::int64_t end = std::min(begin + segment, size - 1);
          add_by_page(model, {ids.begin() + begin, ids.begin() + end},
                      positions(next - begin, end - begin), {}, expected);
          next = end;
        }
        for (const std::int64_t chunk : {1, 13, 1000}) {
          CAPTURE(size);
          CAPTURE(stride);
          CAPTURE(chunk);
          check_map(map_of(model, ids, {0, chunk, stride, 0}), expected);
        }
      }
    }
  });
}

TEST_CASE("AttentionMap: counts the queries of independent units") {
  for_networks_with_maps([](const net::Network& network, const nn::Model& model) {
    const Ids ids = random_ids(41, network.vocab_size);
    const std::vector<std::int64_t> ends{1, 4, 8, 9, 21, 22, 41};
    for (const std::optional<shard::TokenId> first :
         {std::optional<shard::TokenId>(7), std::optional<shard::TokenId>()}) {
      Sums expected;
      std::int64_t begin = 0;
      for (const std::int64_t end : ends) {
        Ids unit(ids.begin() + begin, ids.begin() + end);
        if (first) unit.insert(unit.begin(), *first);
        const auto inputs = static_cast<std::int64_t>(unit.size()) - 1;
        unit.pop_back();
        if (inputs > 0) add_by_page(model, unit, positions(0, inputs), {}, expected);
        begin = end;
      }
      for (const std::int64_t chunk : {1, 13, 1000}) {
        CAPTURE(chunk);
        nn::AttentionMap map(network, net::make_geometry(network, network.lengths));
        EvaluationOptions options;
        options.chunk = chunk;
        options.attention_map = &map;
        const nn::ModelAtLengths at_lengths(model, network.lengths);
        IndependentScorer scorer(at_lengths, "ids", first, options);
        std::int64_t put = 0;
        for (const std::int64_t end : ends) {
          for (; put < end; ++put) scorer.put(ids[static_cast<std::size_t>(put)]);
          scorer.end_unit();
        }
        scorer.finish();
        check_map(map, expected);
      }
    }
  });
}

}  // namespace ql::eval
