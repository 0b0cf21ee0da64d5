// Scores items token by token in double precision, by the network on one page, and compares
// eval::ItemScorer with that.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "eval/items.h"
#include "network_on_one_page.h"
#include "torch_doctest.h"

namespace ql::test {

using ItemIds = std::vector<std::int64_t>;

struct ExpectedChoice {
  double log_probability = 0;
  bool greedy = true;
  bool tie = false;  // rounding decides which token is the likeliest
};

inline ExpectedChoice score_by_page(const nn::Model& model, const net::Lengths& lengths,
                                    const ItemIds& context, const ItemIds& choice) {
  NetworkOnOnePage page{model.network(), {}};
  for (const nn::NamedTensor& parameter : model.parameters()) {
    page.weights[parameter.name] = parameter.tensor.detach().to(at::kDouble, false, true);
  }
  ItemIds tokens = context;
  tokens.insert(tokens.end(), choice.begin(), choice.end());
  const auto segment = static_cast<std::size_t>(lengths.segment);
  tokens.resize((tokens.size() + segment - 1) / segment * segment);
  const ItemIds starts = model.network().reset_memory_at_documents ? ItemIds{0} : ItemIds{};
  const at::Tensor outputs = page.read(lengths, tokens, starts).outputs;
  ExpectedChoice expected;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const at::Tensor output = outputs[static_cast<std::int64_t>(context.size() + i) - 1];
    const double loss = page.loss(output, choice[i]).item<double>();
    expected.log_probability -= loss;
    for (std::int64_t id = 0; id < model.network().vocab_size; ++id) {
      const double other = id == choice[i] ? loss : page.loss(output, id).item<double>();
      if (id != choice[i] && std::abs(other - loss) < 1e-6) expected.tie = true;
      if (other < loss) expected.greedy = false;
    }
  }
  return expected;
}

// Items whose contexts have all lengths around those of segments, with equal and empty choices and
// contexts that begin alike. `longest` is the length of the longest context.
inline std::vector<eval::Item> draw_items(const nn::Model& model, std::int64_t segment,
                                          std::int64_t longest, bool empty_contexts) {
  std::mt19937 generator(7);
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(generator() % static_cast<std::uint32_t>(end));
  };
  const auto draw = [&](std::int64_t count) {
    ItemIds ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(below(model.network().vocab_size));
    return ids;
  };
  std::vector<eval::Item> items;
  const ItemIds all = draw(longest);
  for (const std::int64_t length :
       {std::int64_t{0}, std::int64_t{1}, segment - 2, segment - 1, segment, 2 * segment + 1,
        longest, longest, longest - 1, std::int64_t{2}, longest - segment}) {
    if (length < 0 || (length == 0 && !empty_contexts)) continue;
    eval::Item item;
    item.number = static_cast<std::int64_t>(items.size()) + 1;
    item.context = {all.begin(), all.begin() + length};
    for (const std::int64_t count : {std::int64_t{1}, below(5) + 1, std::int64_t{0}, segment}) {
      item.choices.push_back({draw(count), {}, {}, {}});
    }
    item.choices.push_back(item.choices[1]);
    items.push_back(std::move(item));
  }
  return items;
}

// Checks the scores of items, in one batch and item by item. The log probability of a token may
// differ by `tolerance`.
inline void check_items(const nn::Model& model, std::optional<shard::TokenId> begin,
                        std::int64_t longest, double tolerance) {
  const at::NoGradGuard no_gradient;
  const net::Lengths& lengths = model.network().lengths;
  const nn::ModelAtLengths at_lengths(model, lengths);
  for (const bool at_once : {true, false}) {
    std::vector<eval::Item> items = draw_items(model, lengths.segment, longest, begin.has_value());
    std::vector<eval::Item> scored;
    eval::ItemScorer scorer(at_lengths, begin, {},
                            [&](eval::Item item) { scored.push_back(std::move(item)); });
    const auto run = [&](const eval::Item& item) {
      scorer.put(item);
      if (!at_once) scorer.put_waiting();
    };
    for (const eval::Item& item : items) run(item);
    scorer.put_waiting();
    REQUIRE(scored.size() == items.size());
    double largest = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      CHECK(scored[i].number == items[i].number);
      ItemIds context;
      if (begin) context.push_back(static_cast<std::int64_t>(*begin));
      context.insert(context.end(), items[i].context.begin(), items[i].context.end());
      for (std::size_t choice = 0; choice < items[i].choices.size(); ++choice) {
        const eval::Choice& found = scored[i].choices[choice];
        const ExpectedChoice expected =
            score_by_page(model, lengths, context, items[i].choices[choice].ids);
        const double difference = std::abs(found.log_probability - expected.log_probability);
        const auto tokens = static_cast<double>(found.ids.size());
        largest = larger(largest, difference / std::max(1.0, tokens));
        if (!expected.tie) CHECK(found.greedy == expected.greedy);
      }
    }
    CHECK(largest < tolerance);
  }
}

}  // namespace ql::test
