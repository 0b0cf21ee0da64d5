// The networks, the streams and the reference of the tests of evaluation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "eval/evaluate.h"
#include "network_on_one_page.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql::eval {

using Ids = std::vector<std::int64_t>;

inline Ids random_ids(std::int64_t count, std::int64_t vocab_size) {
  const at::Tensor tokens = test::random_tokens(1, count, vocab_size, 5);
  const auto* data = tokens.data_ptr<std::int64_t>();
  return {data, data + count};
}

// Some documents begin with a segment, others inside one.
inline const Ids& documents() {
  static const Ids starts{0, 5, 6, 16, 17, 33, 40, 72, 100, 101, 149};
  return starts;
}

// Returns a source that keeps a copy of the ids.
inline TokenSource source_from(const Ids& ids,
                               std::function<const Ids&()> document_starts = documents) {
  return {"ids", static_cast<std::int64_t>(ids.size()),
          [ids](std::int64_t begin, std::int64_t count, std::int64_t* out) {
            REQUIRE(begin >= 0);
            REQUIRE(begin + count <= static_cast<std::int64_t>(ids.size()));
            std::copy_n(ids.begin() + begin, count, out);
          },
          std::move(document_starts)};
}

// The networks of all tests of evaluation, by names: every architecture, pooling and key that
// changes how a stream is read, at lengths that differ in what is computed again or kept.
inline std::map<std::string, net::Network> networks() {
  using test::kCompressive, test::kMultiScale, test::kQl, test::kXl, test::small_network;
  std::map<std::string, net::Network> all;
  const auto add = [&](const char* name, const net::Network& network, std::int64_t rate = 2,
                       net::Pool pool = net::Pool::kMax) -> net::Network& {
    net::Network& added = all[name] = network;
    added.rate = rate;
    added.pool = pool;
    return added;
  };
  const auto vanilla = net::Architecture::kVanilla;
  add("two scales", small_network(kQl, {1, 1}, 1, {4, 4, 0}));  // computes states again
  add("three scales", small_network(kQl, {1, 1, 1}, 1, {4, 8, 0}));
  add("nothing again", small_network(kQl, {1, 1, 1}, 1, {8, 4, 0}));
  add("mean pooling", small_network(kQl, {1, 2}, 1, {4, 2, 0}), 2, net::Pool::kMean);
  add("rate 4", small_network(kQl, {1, 1}, 0, {4, 4, 0}), 4);
  add("zero memory", small_network(kQl, {2, 1}, 1, {4, 0, 0}));
  add("long memory", small_network(kQl, {1, 1}, 1, {2, 8, 0}));
  add("linear attention", small_network(kQl, {1, 1}, 1, {4, 6, 0})).attention =
      net::Attention::kLinear;
  add("query-only pooling", small_network(kQl, {1, 1}, 1, {4, 4, 0})).query_only_pooling = true;
  add("norm after the sum", small_network(kQl, {1, 1}, 1, {4, 4, 0})).pre_lnorm = false;
  add("wide coarse states", small_network(kQl, {1, 1}, 1, {4, 4, 0})).scale_widths = {8, 12};
  add("documents", small_network(kQl, {1, 1}, 1, {4, 8, 0})).reset_memory_at_documents = true;
  add("Transformer-XL", small_network(kXl, {3}, 0, {4, 6, 0}));
  add("post-norm Transformer-XL", small_network(kXl, {2}, 0, {3, 5, 0})).pre_lnorm = false;
  add("segment of one", small_network(kXl, {2}, 0, {1, 3, 0}));
  add("Transformer-XL without memory", small_network(kXl, {2}, 0, {5, 0, 0}));
  add("documents without memory", small_network(kXl, {2}, 0, {5, 0, 0})).reset_memory_at_documents =
      true;
  net::Network& adaptive = add("adaptive softmax", small_network(kXl, {2}, 0, {3, 5, 0}));
  adaptive.cutoffs = {4};
  adaptive.div_val = 2;
  add("Multi-scale", small_network(kMultiScale, {1, 1}, 1, {8, 0, 0}));
  add("vanilla", small_network(vanilla, {2}, 0, {6, 0, 0}));
  add("Compressive", small_network(kCompressive, {2}, 0, {4, 6, 3}));
  add("convolution", small_network(kCompressive, {2}, 0, {6, 4, 3}), 3, net::Pool::kConvolution);
  add("convolution without memory", small_network(kCompressive, {2}, 0, {6, 0, 3}), 3,
      net::Pool::kConvolution);
  add("dilated convolution", small_network(kCompressive, {2}, 0, {6, 4, 3}), 3,
      net::Pool::kDilatedConvolution);
  add("most used", small_network(kCompressive, {2}, 0, {4, 3, 3}), 2, net::Pool::kMostUsed);
  return all;
}

inline bool has_memory(const net::Network& network) {
  return has_memory(net::make_geometry(network, network.lengths));
}

// Calls use(network, model) for every network.
template <typename Use>
void for_networks(const Use& use) {
  for (const auto& [name, network] : networks()) {
    CAPTURE(name);
    use(network, test::random_model(network, 7));
  }
}

// A part of a stream that is read from empty memory, whatever comes before it.
struct Piece {
  Ids ids;                     // each but the last is an input, each but the first a target
  std::int64_t position = 0;   // of the first in the stream
  std::int64_t first_one = 1;  // the place in `ids` of the first target that is scored
};

// Cuts a stream in the obvious way: there is an empty memory after every `reset` tokens, and in
// each such part a window after every `stride` tokens, which scores the targets that no window
// before it has. 0: there is one part, or one window.
inline std::vector<Piece> pieces_of(const Ids& ids, std::int64_t segment, std::int64_t stride = 0,
                                    std::int64_t reset = 0) {
  std::vector<Piece> pieces;
  const auto inputs = static_cast<std::int64_t>(ids.size()) - 1;
  for (std::int64_t begin = 0; begin<inputs; begin += reset> 0 ? reset : inputs) {
    const std::int64_t end = reset > 0 ? std::min(begin + reset, inputs) : inputs;
    std::int64_t next = begin + 1;
    for (std::int64_t window = begin; next <= end; window += stride) {
      const std::int64_t last = stride > 0 ? std::min(window + segment, end) : end;
      pieces.push_back({{ids.begin() + window, ids.begin() + last + 1}, window, next - window});
      next = last + 1;
    }
  }
  return pieces;
}

// The losses and the attention of pieces.
struct Expected {
  struct Attention {
    double probability = 0;  // the sum over the queries
    std::int64_t queries = 0;
  };
  std::map<std::int64_t, double> losses;  // by the target's position in the stream
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Attention>
      attention;  // by layer, head and distance in states
};

// Returns how many tokens a state of each layer covers.
inline Ids tokens_of_states(const net::Network& network) {
  Ids tokens;
  std::int64_t stride = 1;
  for (const std::int64_t layers : network.scales) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(layers), stride);
    stride *= network.rate;
  }
  tokens.insert(tokens.end(), static_cast<std::size_t>(network.output_layers), 1);
  return tokens;
}

// The reference: reads every piece by the network on one page. A query counts where the newest
// token that its state covers has a scored target.
inline Expected read_pieces(const nn::Model& model, const net::Lengths& lengths,
                            const std::vector<Piece>& pieces, const Ids& starts = documents()) {
  const at::NoGradGuard no_gradient;
  const net::Network& network = model.network();
  const Ids tokens = tokens_of_states(network);
  Expected expected;
  for (const Piece& piece : pieces) {
    const auto inputs = static_cast<std::int64_t>(piece.ids.size()) - 1;
    if (inputs < 1) continue;
    Ids padded(piece.ids.begin(), piece.ids.end() - 1), starts_of_piece;
    while (static_cast<std::int64_t>(padded.size()) % lengths.segment != 0) padded.push_back(3);
    for (const std::int64_t start : starts) starts_of_piece.push_back(start - piece.position);
    test::NetworkOnOnePage page{network, {}};
    for (const nn::NamedTensor& parameter : model.parameters()) {
      page.weights[parameter.name] = parameter.tensor.to(at::kDouble);
    }
    page.dropout = [&](const at::Tensor& share, nn::DropoutSite site, std::int64_t step) {
      if (site.kind != nn::DropoutSite::kAttentionProbability) return share;
      const at::Tensor kept = share.contiguous();
      const auto probability = kept.accessor<double, 3>();
      const std::int64_t queries = share.size(1), keys = share.size(2);
      for (std::int64_t query = 0; query < queries; ++query) {
        const std::int64_t after_newest =
            (step + 1) * lengths.segment -
            (queries - 1 - query) * tokens.at(static_cast<std::size_t>(site.layer));
        // A state that is computed again had its query in an earlier step.
        if (after_newest <= step * lengths.segment || after_newest < piece.first_one ||
            after_newest > inputs) {
          continue;
        }
        const std::int64_t own = keys - queries + query;
        for (std::int64_t head = 0; head < share.size(0); ++head) {
          for (std::int64_t key = 0; key <= own; ++key) {
            Expected::Attention& sum = expected.attention[{site.layer, head, own - key}];
            sum.probability += probability[head][query][key];
            ++sum.queries;
          }
        }
      }
      return share;
    };
    const at::Tensor outputs = page.read(lengths, padded, starts_of_piece).outputs;
    for (std::int64_t place = piece.first_one; place <= inputs; ++place) {
      const std::int64_t target = piece.ids.at(static_cast<std::size_t>(place));
      expected.losses[piece.position + place] =
          page.loss(outputs[place - 1], target).item<double>();
    }
  }
  return expected;
}

constexpr shard::TokenId kUnknownId = 4;

// The oracle of the evaluation of long streams, for which the network on one page takes too long.
// Reads the stream as training does: a segment goes through all layers before the next segment
// does. Returns the losses by position; that of position 0 is 0.
inline std::vector<double> read_stepwise(const nn::Model& model, const Ids& ids,
                                         const Ids& starts) {
  const at::NoGradGuard no_gradient;
  const net::Network& network = model.network();
  const std::int64_t segment = network.lengths.segment;
  Ids inputs(ids.begin(), ids.end() - 1);
  while (static_cast<std::int64_t>(inputs.size()) % segment != 0) inputs.push_back(0);
  const at::Tensor states =
      test::read_states(model, network.lengths, at::tensor(inputs).unsqueeze(0),
                        network.reset_memory_at_documents ? std::vector<test::Starts>{starts}
                                                          : std::vector<test::Starts>());
  const Ids targets(ids.begin() + 1, ids.end());
  const auto count = static_cast<std::int64_t>(targets.size());
  const at::Tensor losses =
      model.losses(states.narrow(1, 0, count), at::tensor(targets).unsqueeze(0)).to(at::kDouble);
  std::vector<double> by_position{0};
  by_position.insert(by_position.end(), losses.data_ptr<double>(),
                     losses.data_ptr<double>() + count);
  return by_position;
}

// Everything that an evaluation hands over, and the options for it.
struct Scored {
  explicit Scored(const nn::Model& model, bool in_order = true) {
    options.lengths = model.network().lengths;
    options.unknown = kUnknownId;
    options.sink = [this, in_order](const ScoredTargets& targets) {
      for (std::int64_t i = 0; i < targets.count; ++i) {
        const std::int64_t position = targets.position + i;
        if (in_order) CHECK((losses.empty() || losses.rbegin()->first < position));
        CHECK(losses.emplace(position, targets.losses[i]).second);
      }
    };
  }
  Scored(const Scored&) = delete;
  Scored& operator=(const Scored&) = delete;

  EvaluationOptions options;
  Evaluation evaluation;
  std::map<std::int64_t, double> losses;  // by position
};

inline void check_sums(const LossSums& found, const LossSums& expected, double tolerance) {
  CHECK(found.targets == expected.targets);
  CHECK(found.nll == doctest::Approx(expected.nll).epsilon(tolerance));
  CHECK(found.squares == doctest::Approx(expected.squares).epsilon(tolerance));
}

// Requires every expected loss, once, and their sums; `ids` are those of the stream.
inline void check_scored(const Scored& scored, const Ids& ids,
                         const std::map<std::int64_t, double>& expected, double tolerance = 1e-10) {
  double worst = 0;
  LossSums all, known;
  REQUIRE(scored.losses.size() == expected.size());
  auto found = scored.losses.begin();
  for (const auto& [position, loss] : expected) {
    REQUIRE(found->first == position);
    worst = test::larger(worst, std::abs((found++)->second - loss));
    all.add(loss);
    if (ids.at(static_cast<std::size_t>(position)) != kUnknownId) known.add(loss);
  }
  CHECK(worst <= tolerance);
  check_sums(scored.evaluation, all, tolerance);
  check_sums(scored.evaluation.known, known, tolerance);
}

// Requires the map to have the same means over as many queries.
inline void check_map(const nn::AttentionMap& map, const Expected& expected) {
  std::size_t seen = 0;
  for (const nn::AttentionMap::Distance& distance : map.distances()) {
    CAPTURE(distance.stage->layer);
    CAPTURE(distance.head);
    CAPTURE(distance.states);
    const auto found =
        expected.attention.find({distance.stage->layer, distance.head, distance.states});
    REQUIRE(distance.queries == (found == expected.attention.end() ? 0 : found->second.queries));
    if (distance.queries == 0) continue;
    ++seen;
    CHECK(distance.probability ==
          doctest::Approx(found->second.probability / static_cast<double>(distance.queries))
              .epsilon(1e-9));
  }
  CHECK(seen == expected.attention.size());
}

// Calls run(scored) with options whose attention map, where the network has one, is checked
// together with the losses.
template <typename Run>
void check_reading(const nn::Model& model, const Ids& ids, const Expected& expected,
                   const Run& run) {
  const net::Network& network = model.network();
  Scored scored(model);
  std::optional<nn::AttentionMap> map;
  // The page counts distances from other places when states of two scales are keys.
  if (network.attention == net::Attention::kSoftmax && !network.query_only_pooling) {
    map.emplace(network, net::make_geometry(network, network.lengths));
    scored.options.attention_map = &*map;
  }
  run(scored);
  check_scored(scored, ids, expected.losses);
  if (map) check_map(*map, expected);
}

}  // namespace ql::eval
