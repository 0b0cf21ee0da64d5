// Compares continuations of prompts with the same tokens, read segment by segment or window by
// window.
#include "generate/generator.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "unit/drawn_networks.h"
#include "unit/eval_support.h"
#include "unit/torch_doctest.h"

namespace ql::test {
namespace {

using generate::GeneratedToken;
using generate::GenerationOptions;
using generate::Generator;

std::vector<shard::TokenId> prompt_of(std::int64_t length, std::uint64_t seed) {
  const at::Tensor tokens = random_tokens(1, length, 11, seed);
  const auto* ids = tokens.data_ptr<std::int64_t>();
  return {ids, ids + length};
}

// Calls generate() for one prompt.
std::vector<GeneratedToken> made(Generator& generator, const std::vector<shard::TokenId>& prompt) {
  generator.put(prompt.data(), prompt.size());
  std::vector<GeneratedToken> tokens;
  generator.generate([&](const GeneratedToken& token) { tokens.push_back(token); }, [] {});
  return tokens;
}

std::vector<shard::TokenId> ids_of(const std::vector<GeneratedToken>& tokens, std::int64_t sample) {
  std::vector<shard::TokenId> ids;
  for (const GeneratedToken& token : tokens) {
    if (token.sample == sample) ids.push_back(token.id);
  }
  return ids;
}

}  // namespace

TEST_CASE("Generator: the probabilities of a continuation are those of the complete stream") {
  const at::NoGradGuard no_gradient;
  std::uint64_t seed = 0;
  for (const net::Network& network : drawn_networks(21, 2, 40)) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = random_model(network, ++seed);
    const std::int64_t segment = network.lengths.segment;
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    GenerationOptions options;
    options.tokens = 3 * segment + 1;
    options.samples = 2;
    // The prompts have one token, a part of a segment, or some segments.
    for (const std::int64_t length : {std::int64_t{1}, segment + 1, 4 * segment}) {
      Generator generator(at_lengths, "prompt", options);
      const auto prompt = prompt_of(length, seed);
      // The document that a network does not forget begins inside the prompt.
      const auto start = static_cast<std::size_t>(length / 2);
      generator.begin_document();
      generator.put(prompt.data(), start);
      generator.begin_document();
      const auto tokens =
          made(generator, {prompt.begin() + static_cast<std::ptrdiff_t>(start), prompt.end()});
      REQUIRE(tokens.size() == static_cast<std::size_t>(2 * options.tokens));
      for (const std::int64_t sample : {0, 1}) {
        std::vector<std::int64_t> all(prompt.begin(), prompt.end());
        for (const shard::TokenId id : ids_of(tokens, sample)) all.push_back(id);
        all.resize((all.size() + static_cast<std::size_t>(segment) - 1) /
                   static_cast<std::size_t>(segment) * static_cast<std::size_t>(segment));
        const at::Tensor stream = at::tensor(all).unsqueeze(0);
        const std::vector<Starts> starts = network.reset_memory_at_documents
                                               ? std::vector<Starts>{{length / 2}}
                                               : std::vector<Starts>{};
        const at::Tensor expected =
            model.log_probabilities(read_states(model, network.lengths, stream, starts));
        double largest = 0;
        for (const GeneratedToken& token : tokens) {
          if (token.sample != sample) continue;
          const double of_stream =
              expected[0][length + token.position - 1][static_cast<std::int64_t>(token.id)]
                  .item<double>();
          largest = test::larger(largest, std::abs(of_stream - token.log_probability));
        }
        // The log probabilities are float32.
        CHECK(largest < 1e-4);
      }
    }
  }
}

TEST_CASE("Generator: sliding windows give the probabilities of an evaluation with that stride") {
  const auto adaptive = [](net::Network network) {
    network.cutoffs = {3, 7};
    return network;
  };
  const net::Network networks[] = {
      small_network(net::Architecture::kVanilla, {2}, 0, {6, 0, 0}),
      adaptive(small_network(net::Architecture::kVanilla, {2}, 0, {5, 0, 0})),
      small_network(net::Architecture::kVanilla, {1}, 0, {1, 0, 0}),
      // Its windows are read again in several parts.
      small_network(net::Architecture::kVanilla, {1}, 0, {150, 0, 0}),
      small_network(net::Architecture::kMultiScale, {1, 1}, 1, {8, 0, 0}),
      small_network(net::Architecture::kMultiScale, {1, 2, 1}, 1, {8, 0, 0}),
      small_network(net::Architecture::kTransformerXl, {2}, 0, {5, 0, 0})};
  std::uint64_t seed = 0;
  for (const net::Network& network : networks) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = random_model(network, ++seed);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    const std::int64_t segment = network.lengths.segment;
    const std::int64_t half = generate::usual_stride(at_lengths.geometry());
    CHECK(half == std::max<std::int64_t>(1, segment / 2));
    for (const std::int64_t stride :
         {std::int64_t{1}, half, std::max(half, segment - 1), segment}) {
      if (stride == 1 && segment > 100) continue;
      for (const std::int64_t length : {std::int64_t{1}, segment, segment + 1, 3 * segment + 2}) {
        CAPTURE(stride);
        CAPTURE(length);
        GenerationOptions options;
        options.stride = stride;
        options.tokens = 2 * segment + 3;
        options.samples = 2;
        Generator generator(at_lengths, "prompt", options);
        const auto prompt = prompt_of(length, seed);
        const auto tokens = made(generator, prompt);
        for (const std::int64_t sample : {0, 1}) {
          eval::Ids all(prompt.begin(), prompt.end());
          for (const shard::TokenId id : ids_of(tokens, sample)) all.push_back(id);
          std::vector<double> losses(1);
          eval::EvaluationOptions evaluation;
          evaluation.lengths = network.lengths;
          evaluation.stride = stride;
          evaluation.sink = [&](const eval::ScoredTargets& targets) {
            losses.insert(losses.end(), targets.losses, targets.losses + targets.count);
          };
          eval::evaluate(model, eval::source_from(all), evaluation);
          REQUIRE(losses.size() == all.size());
          double largest = 0;
          for (const GeneratedToken& token : tokens) {
            if (token.sample != sample) continue;
            const double loss = losses[static_cast<std::size_t>(length + token.position)];
            largest = test::larger(largest, std::abs(loss + token.log_probability));
          }
          // The log probabilities are float32.
          CHECK(largest < 1e-4);
        }
      }
    }
  }
}

TEST_CASE("Generator: a stride is refused if an evaluation refuses it") {
  const net::Network network = small_network(net::Architecture::kTransformerXl, {1}, 0, {4, 4, 0});
  const nn::Model model = random_model(network, 3);
  const nn::ModelAtLengths with_memory(model, network.lengths), without(model, {4, 0, 0});
  CHECK(generate::usual_stride(with_memory.geometry()) == 0);
  CHECK(generate::usual_stride(without.geometry()) == 2);
  GenerationOptions options;
  options.stride = 2;
  CHECK_THROWS_WITH_AS(
      Generator(with_memory, "p", options),
      doctest::Contains("works only without memory, but this network has a memory"), ConfigError);
  options.stride = 5;
  CHECK_THROWS_WITH_AS(Generator(without, "p", options), doctest::Contains("expected 1 to 4"),
                       ConfigError);
}

TEST_CASE("Generator: a sample depends neither on other samples nor on earlier prompts' lengths") {
  net::Network network;
  GenerationOptions options;
  SUBCASE("segments") {
    network = small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
  }
  SUBCASE("sliding windows") {
    network = small_network(net::Architecture::kMultiScale, {1, 1}, 1, {8, 0, 0});
    options.stride = 3;
  }
  const nn::Model model = random_model(network, 1, at::kFloat);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  options.tokens = 30;
  const auto samples = [&](std::int64_t count, std::int64_t first_prompt) {
    options.samples = count;
    Generator generator(at_lengths, "prompt", options);
    made(generator, prompt_of(first_prompt, 1));
    return made(generator, prompt_of(9, 2));
  };
  const auto many = samples(70, 5), one = samples(1, 8);
  CHECK(ids_of(one, 0) == ids_of(many, 0));
  for (std::size_t i = 0; i < 30; ++i) CHECK(one[i].log_probability == many[i].log_probability);
  CHECK(ids_of(samples(66, 5), 65) == ids_of(many, 65));
  CHECK(ids_of(many, 0) != ids_of(many, 1));
  // The samples come in order.
  for (std::size_t i = 0; i < many.size(); ++i) {
    CHECK(many[i].sample == static_cast<std::int64_t>(i / 30));
    CHECK(many[i].position == static_cast<std::int64_t>(i % 30));
  }
  options.seed = 2;
  CHECK(ids_of(samples(1, 5), 0) != ids_of(one, 0));
}

TEST_CASE("Generator: excluded tokens do not change the probabilities of the others") {
  const net::Network network = small_network(net::Architecture::kTransformerXl, {2}, 0, {4, 4, 0});
  const nn::Model model = random_model(network, 3);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  GenerationOptions options;
  options.tokens = 1;
  options.samples = 300;
  std::map<shard::TokenId, double> plain, limited;
  for (const bool without : {false, true}) {
    if (without) options.rules.without = {2, 4};
    Generator generator(at_lengths, "prompt", options);
    for (const GeneratedToken& token : made(generator, {1, 2})) {
      (without ? limited : plain)[token.id] = token.log_probability;
    }
  }
  CHECK(plain.count(2) + plain.count(4) == 2);
  CHECK(limited.count(2) + limited.count(4) == 0);
  for (const auto& [id, log_probability] : limited) {
    if (plain.count(id) > 0) CHECK(plain[id] == log_probability);
  }
}

TEST_CASE("Generator: a repetition penalty counts the prompt's tokens, in a window the last ones") {
  const net::Network network = small_network(net::Architecture::kTransformerXl, {2}, 0, {4, 4, 0});
  const nn::Model model = random_model(network, 3);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  const std::vector<shard::TokenId> prompt = {1, 2, 1, 3, 2};
  for (const std::int64_t window : {0, 1, 2, 3, 9}) {
    CAPTURE(window);
    GenerationOptions options;
    options.tokens = 40;
    options.rules.temperature = 0;
    options.rules.repetition_penalty = 1.6;
    options.rules.repetition_window = window;
    Generator generator(at_lengths, "prompt", options);
    std::vector<std::int64_t> all(prompt.begin(), prompt.end());
    for (const GeneratedToken& token : made(generator, prompt)) {
      // The logits of the complete stream lead to the same choice.
      std::vector<std::int64_t> padded = all;
      while (padded.size() % 4 != 0) padded.push_back(0);
      const at::Tensor logits =
          model.logits(read_states(model, network.lengths, at::tensor(padded).unsqueeze(0), {}))
              .select(1, static_cast<std::int64_t>(all.size()) - 1)
              .clone();
      const std::size_t first = window == 0 || static_cast<std::size_t>(window) > all.size()
                                    ? 0
                                    : all.size() - static_cast<std::size_t>(window);
      const std::set<std::int64_t> recent(all.begin() + static_cast<std::ptrdiff_t>(first),
                                          all.end());
      for (const std::int64_t id : recent) {
        const double logit = logits[0][id].item<double>();
        logits[0][id] = logit > 0 ? logit / 1.6 : logit * 1.6;
      }
      REQUIRE(logits.argmax().item<std::int64_t>() == static_cast<std::int64_t>(token.id));
      all.push_back(static_cast<std::int64_t>(token.id));
    }
  }
}

TEST_CASE("Generator: an output that is not finite is an error, not a token") {
  const at::NoGradGuard no_gradient;
  const net::Network network = drawn_networks(1, 2, 40).front();
  const nn::Model model = random_model(network, 1);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    at::Tensor(parameter.tensor).fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  GenerationOptions options;
  options.tokens = 1;
  options.model = "broken";
  Generator generator(at_lengths, "prompt", options);
  CHECK_THROWS_WITH_AS(
      made(generator, prompt_of(3, 1)),
      doctest::Contains("broken: the network's output for token 0 is not finite; "),
      eval::NotFinite);
}

TEST_CASE("Generator: an output that is not finite for one cluster is an error, too") {
  const at::NoGradGuard no_gradient;
  net::Network network = small_network(net::Architecture::kTransformerXl, {2}, 0, {4, 4, 0});
  network.cutoffs = {3, 7};
  const nn::Model model = random_model(network, 1);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    if (parameter.name != "word_emb.emb_layers.0.weight") continue;
    at::Tensor(parameter.tensor).narrow(0, 3, 8).fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  GenerationOptions options;
  options.tokens = 1;
  for (const double temperature : {0.0, 1.0}) {
    for (const double penalty : {1.0, 1.2}) {
      options.rules.temperature = temperature;
      options.rules.repetition_penalty = penalty;
      Generator generator(at_lengths, "prompt", options);
      CHECK_THROWS_AS(made(generator, {0, 1, 2}), eval::NotFinite);
    }
  }
}

TEST_CASE("Generator: a continuation ends with a token of options.ends") {
  const net::Network network = small_network(net::Architecture::kTransformerXl, {2}, 0, {4, 4, 0});
  const nn::Model model = random_model(network, 3);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  GenerationOptions options;
  options.tokens = 200;
  options.samples = 3;
  options.ends = {{4}};
  const auto tokens = [&](std::vector<shard::TokenId> prompt) {
    Generator generator(at_lengths, "prompt", options);
    return made(generator, prompt);
  };
  const auto once = tokens({1, 2});
  std::vector<std::size_t> lengths;
  for (const std::int64_t sample : {0, 1, 2}) {
    const auto ids = ids_of(once, sample);
    lengths.push_back(ids.size());
    REQUIRE(ids.size() < 200);
    CHECK(std::count(ids.begin(), ids.end(), 4U) == 1);
    CHECK(ids.back() == 4);
  }
  // Twice in a row: the prompt's last token counts.
  options.ends = {{4, 2}};
  const auto twice = ids_of(tokens({1, 4}), 0);
  const std::string text(twice.begin(), twice.end());
  const auto end = ("\4" + text).find("\4\4");
  CHECK(end + 1 == text.size());

  options.ends = {{11}};
  CHECK_THROWS_WITH_AS(Generator(at_lengths, "p", options),
                       doctest::Contains("outside the vocabulary of 11 entries"), UsageError);
  options.ends.clear();
  const auto refused = [&](std::vector<shard::TokenId> without, const char* message) {
    options.rules.without = std::move(without);
    CHECK_THROWS_WITH_AS(Generator(at_lengths, "p", options), doctest::Contains(message),
                         UsageError);
  };
  refused({0, 11}, "--without: the id 11 is outside the vocabulary of 11 entries");
  refused({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10}, "excludes every token of the vocabulary");
  options.ends = {{4}};
  refused({1, 4}, "the token with the id 4 is also given with --until");
  options.ends.clear();
  options.rules.without.clear();
  Generator generator(at_lengths, "the prompt", options);
  const shard::TokenId outside = 11;
  CHECK_THROWS_WITH_AS(generator.put(&outside, 1), doctest::Contains("the prompt"), Error);
}

TEST_CASE("Generator: a continuation ends with a string over the borders of tokens") {
  const net::Network network = small_network(net::Architecture::kTransformerXl, {2}, 0, {4, 4, 0});
  const nn::Model model = random_model(network, 3);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  GenerationOptions options;
  options.tokens = 200;
  options.samples = 3;
  options.rules.temperature = 1000;
  options.token_texts = {"a", "b", "ab", "", "ba", "a ", "c", " b", "cc", "bb", "d"};
  const auto make = [&] {
    Generator generator(at_lengths, "prompt", options);
    return made(generator, {1, 2});
  };
  const auto all = make();
  options.stop_strings = {"cac", "bbd", "dab"};
  const auto found = make();
  std::size_t strings = 0;
  for (const std::int64_t sample : {0, 1, 2}) {
    std::string text;
    std::vector<std::size_t> ends;
    std::size_t stop = std::string::npos;
    for (const shard::TokenId id : ids_of(all, sample)) {
      text += options.token_texts[id];
      ends.push_back(text.size());
      for (const std::string& string : options.stop_strings) {
        stop = std::min(stop, text.find(string));
      }
      if (stop != std::string::npos) break;
    }
    strings += stop != std::string::npos ? 1 : 0;
    std::size_t i = 0;
    for (const GeneratedToken& token : found) {
      if (token.sample != sample) continue;
      REQUIRE(i < ends.size());
      CHECK(token.id == ids_of(all, sample)[i]);
      CHECK(token.before_string.has_value() == (ends[i] > stop));
      const std::size_t begin = ends[i] - options.token_texts[token.id].size();
      CHECK(token.before_string.value_or(0) == (ends[i] > stop && stop > begin ? stop - begin : 0));
      ++i;
    }
    CHECK(i == ends.size());
  }
  CHECK(strings > 0);
}

}  // namespace ql::test
