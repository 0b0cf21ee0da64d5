// Compares the scores of items with the network on one page, token by token, and the figures of
// items with sums by hand.

#include "eval/items.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "unit/drawn_networks.h"
#include "unit/eval_support.h"
#include "unit/items_reference.h"
#include "unit/thread_count.h"

namespace ql::eval {

TEST_CASE("ItemScorer: scores are those of a network that reads each choice by itself") {
  for (const auto& [name, network] : networks()) {
    CAPTURE(name);
    // Four choices that have tokens share a beginning of 256 tokens or more.
    const bool at_length = name == "two scales" || name == "documents" || name == "Compressive";
    const nn::Model model = test::random_model(network, 7);
    test::check_items(model, 3, at_length ? 270 : 3 * network.lengths.segment + 2, 1e-10);
    test::check_items(model, std::nullopt, 2 * network.lengths.segment + 1, 1e-10);
  }
}

TEST_CASE("ItemScorer: drawn networks") {
  for (const net::Network& network : test::drawn_networks(5, 1, 12)) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = test::random_model(network, 4);
    test::check_items(model, 1, 2 * network.lengths.segment + 1, 1e-10);
  }
}

TEST_CASE(
    "ItemScorer: a choice that continues greedily is greedy, with any other token it is not") {
  net::Network network = test::small_network(test::kXl, {2}, 0, {8, 6, 0});
  network.vocab_size = 40;
  const nn::Model model = test::random_model(network, 2, at::kFloat);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  std::vector<Item> scored;
  ItemScorer scorer(at_lengths, {}, {}, [&](Item item) { scored.push_back(std::move(item)); });
  Item item;
  item.context = {5, 6, 7};
  item.choices = {{}};
  for (int token = 0; token < 12; ++token) {
    Item tries = item;
    tries.choices.clear();
    for (std::int64_t id = 0; id < 40; ++id) {
      tries.choices.push_back({item.choices.front().ids});
      tries.choices.back().ids.push_back(id);
    }
    scorer.put(tries);
    scorer.put_waiting();
    std::int64_t greedy = 0, best = 0;
    for (std::int64_t id = 0; id < 40; ++id) {
      const auto of = [&](std::int64_t choice) {
        return scored.back().choices[static_cast<std::size_t>(choice)];
      };
      greedy += of(id).greedy ? 1 : 0;
      if (of(id).log_probability > of(best).log_probability) best = id;
    }
    CHECK(greedy == 1);
    CHECK(scored.back().choices[static_cast<std::size_t>(best)].greedy);
    item.choices.front().ids.push_back(best);
  }
}

TEST_CASE("ItemScorer: items have the same bits for any number of threads") {
  net::Network network = networks().at("two scales");
  network.d_model = network.d_inner = 100;
  network.vocab_size = 900;
  for (const std::int64_t segment : {4, 32}) {
    network.lengths.segment = segment;
    const nn::Model model = test::random_model(network, 4, at::kFloat);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    const auto by_threads = [&](int threads) {
      const test::WithThreads with_threads(threads);
      std::vector<double> scores;
      ItemScorer scorer(at_lengths, 1, {}, [&](const Item& item) {
        for (const Choice& choice : item.choices) {
          scores.push_back(choice.log_probability);
          scores.push_back(choice.greedy ? 1 : 0);
        }
      });
      const Ids ids = random_ids(4000, 900);
      for (std::int64_t i = 0; i + 24 < 4000; i += 9) {
        Item item;
        item.context = {ids.begin() + i, ids.begin() + i + 8 + i % 5};
        item.choices = {{{ids.begin() + i + 13, ids.begin() + i + 20}},
                        {{ids.begin() + i + 14, ids.begin() + i + 24}}};
        scorer.put(item);
      }
      scorer.put_waiting();
      return scores;
    };
    const std::vector<double> by_one = by_threads(1);
    CHECK(by_one.size() > 1000);
    CHECK(by_threads(2) == by_one);
    CHECK(by_threads(3) == by_one);
  }
}

TEST_CASE("ItemScorer: a certain choice has the log probability 0, not -0") {
  net::Network network = networks().at("Transformer-XL");
  network.vocab_size = 1;
  const nn::Model model = test::random_model(network, 2, at::kFloat);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  std::vector<Item> scored;
  ItemScorer scorer(at_lengths, {}, {}, [&](Item item) { scored.push_back(std::move(item)); });
  Item item;
  item.context = {0};
  item.choices = {{{0, 0}}, {{}}};
  scorer.put(item);
  scorer.put_waiting();
  for (const Choice& choice : scored.front().choices) {
    CHECK(choice.log_probability == 0);
    CHECK(!std::signbit(choice.log_probability));
  }
}

TEST_CASE("ItemScorer: an output that is not finite for another cluster is an error") {
  const at::NoGradGuard no_gradient;
  net::Network network = test::small_network(test::kXl, {2}, 0, {4, 4, 0});
  network.cutoffs = {3, 7};
  const nn::Model model = test::random_model(network, 1);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    // The three ids and two clusters of the head are equally likely: a choice that is neither the
    // likeliest for sure nor certainly not.
    const at::Tensor tensor = parameter.tensor;
    if (parameter.name.rfind("crit.", 0) == 0) tensor.zero_();
    if (parameter.name != "word_emb.emb_layers.0.weight") continue;
    tensor.zero_();
    tensor.narrow(0, 3, 8).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  EvaluationOptions options;
  options.model = "broken";
  ItemScorer scorer(at_lengths, {}, options, [](const Item&) {});
  Item item;
  item.context = {1};
  item.choices = {{{2}}};
  scorer.put(item);
  CHECK_THROWS_WITH_AS(scorer.put_waiting(),
                       doctest::Contains("broken: the network's output is not finite"), NotFinite);
}

TEST_CASE("ItemScorer: what cannot be scored is refused with its line") {
  const nn::Model model = test::random_model(networks().at("Transformer-XL"), 2, at::kFloat);
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  ItemScorer scorer(at_lengths, {}, {}, [](const Item&) {});
  Item item;
  item.where = "items: line 7";
  item.choices = {{{1}}};
  CHECK_THROWS_WITH_AS(scorer.put(item), doctest::Contains("items: line 7: the context is empty"),
                       Error);
  item.context = {11};
  CHECK_THROWS_WITH_AS(scorer.put(item), doctest::Contains("items: line 7"), Error);
}

TEST_CASE("ItemSums: accuracies, their errors and perplexity") {
  ItemSums sums;
  const auto add = [&](std::optional<std::int64_t> answer, std::vector<Choice> choices) {
    Item item;
    item.answer = answer;
    item.choices = std::move(choices);
    sums.add(item);
  };
  // The first is right by its sum, the second by token and by byte.
  add(0, {{{1, 2}, 0, 2, 2, -4, false}, {{1, 2, 3, 4}, 1, 9, 9, -5, false}});
  add(1, {{{1, 2}, 0, 2, 2, -4, false}, {{1, 2, 3, 4}, 0, 9, 9, -5, false}});
  add(0, {{{1}, 0, 1, 1, -3, true}, {{1}, 0, 1, 1, -3, true}});  // of equal ones, the first
  add({}, {{{1}, 2, 1, 1, -3, true}, {{1}, 0, 1, 1, -3, true}});
  add({}, {{{1}, 0, 1, 1, -2, true}});  // a cloze
  const Json row = sums.row();
  CHECK(row["items"] == 5);
  CHECK(row["answered"] == 4);
  CHECK(row["accuracy"] == 0.75);
  CHECK(row["accuracy_per_byte"] == 0.75);
  CHECK(row["accuracy_per_token"] == 0.75);
  CHECK(row["accuracy_error"].get<double>() == doctest::Approx(0.25));
  CHECK(row["nll"].get<double>() == doctest::Approx((4 + 5 + 3 + 2) / 4.0));
  CHECK(row["perplexity"].get<double>() == doctest::Approx(std::exp((4 + 5 + 3 + 2) / 8.0)));
  CHECK(row["unknown_tokens"] == 3);
  // Two items for which bytes, characters, tokens and sums choose differently.
  add(0, {{{1, 2}, 0, 12, 3, -4, false}, {{1, 2, 3, 4}, 0, 6, 6, -5, false}});
  add(0, {{{1, 2}, 0, 12, 3, -6, false}, {{1, 2, 3, 4}, 0, 6, 6, -5, false}});
  const Json more = sums.row();
  CHECK(more["accuracy"].get<double>() == doctest::Approx(4 / 6.0));
  CHECK(more["accuracy_per_byte"].get<double>() == doctest::Approx(5 / 6.0));
  CHECK(more["accuracy_per_token"].get<double>() == doctest::Approx(3 / 6.0));
  CHECK(more["nll"].get<double>() == doctest::Approx((4 + 5 + 3 + 2 + 4 + 6) / 6.0));
  CHECK(more["perplexity"].get<double>() == doctest::Approx(std::exp(24 / 12.0)));
  add(0, {{{1}, 0, {}, {}, -3, true}, {{1}, {}, 1, 1, -3, true}});
  CHECK(sums.row()["accuracy_per_byte"].is_null());
  CHECK(sums.row()["unknown_tokens"].is_null());
  CHECK(ItemSums().row()["accuracy"].is_null());
}

}  // namespace ql::eval
