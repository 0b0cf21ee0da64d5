// Evaluation against the obvious reader: pieces of a stream, each read by the network on one page.
#include <algorithm>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/losses.h"
#include "eval/stream_parts.h"
#include "unit/eval_support.h"
#include "unit/float32_error.h"
#include "unit/process_support.h"

namespace ql::eval {
namespace {

constexpr std::int64_t kLength = 150;

// Evaluates with all options of `scored`.
void score(const nn::Model& model, const Ids& ids, Scored& scored) {
  scored.evaluation = evaluate(model, source_from(ids), scored.options);
}

void check_chunk(const nn::Model& model, const Ids& ids, const Expected& expected, double tolerance,
                 std::int64_t chunk) {
  CAPTURE(ids.size());
  CAPTURE(chunk);
  Scored scored(model);
  scored.options.chunk = chunk;
  score(model, ids, scored);
  check_scored(scored, ids, expected.losses, tolerance);
}

// By causality the losses of a shorter stream are the first ones of the longer.
void check_prefixes(const nn::Model& model, const Ids& ids, const Expected& expected,
                    double tolerance = 1e-10) {
  const std::int64_t n_s = model.network().lengths.segment;
  for (const std::int64_t length :
       {std::int64_t{2}, n_s, n_s + 1, n_s + 2, 11 * n_s + 1, kLength}) {
    if (length < 2) continue;
    const Ids prefix(ids.begin(), ids.begin() + length);
    Expected of_prefix = expected;
    of_prefix.losses.erase(of_prefix.losses.lower_bound(length), of_prefix.losses.end());
    for (const std::int64_t chunk :
         {std::int64_t{0}, std::int64_t{1}, 2 * n_s, 3 * n_s + 1, 7 * n_s}) {
      check_chunk(model, prefix, of_prefix, tolerance, chunk);
    }
  }
}

Expected read_stream(const nn::Model& model, const Ids& ids) {
  const net::Lengths lengths = model.network().lengths;
  return read_pieces(model, lengths, pieces_of(ids, lengths.segment));
}

}  // namespace

TEST_CASE("evaluate: losses equal those of a single stream in float64") {
  for_networks([](const net::Network& network, const nn::Model& model) {
    const Ids ids = random_ids(kLength, network.vocab_size);
    check_prefixes(model, ids, read_stream(model, ids));
  });
}

TEST_CASE("evaluate: losses equal those of a single stream with memory reset at documents") {
  for_networks([](net::Network network, const nn::Model&) {
    if (network.architecture == net::Architecture::kMultiScale ||
        network.architecture == net::Architecture::kVanilla) {
      return;
    }
    network.reset_memory_at_documents = true;
    const nn::Model model = test::random_model(network, 7);
    const Ids ids = random_ids(kLength, network.vocab_size);
    check_prefixes(model, ids, read_stream(model, ids));
  });
}

// Compares with float64: the error of layer by layer may be at most a fixed multiple of the error
// of a stream that is read segment by segment (float32_error.h).
TEST_CASE("evaluate: losses equal those of a single stream in float32" *
          doctest::test_suite("numeric")) {
  for (const char* name : {"three scales", "Transformer-XL"}) {
    const net::Network network = networks().at(name);
    const nn::Model model = test::random_model(network, 7, at::kFloat);
    const Ids ids = random_ids(kLength + 3, network.vocab_size);
    const Expected exact = read_stream(model, ids);
    const at::Tensor tokens = at::tensor(ids).unsqueeze(0);
    const at::Tensor stream = test::read_streams(
        model, network.lengths, tokens.narrow(1, 0, kLength + 2), tokens.narrow(1, 1, kLength + 2));
    double error = 0, largest = 0;
    for (const auto& [position, loss] : exact.losses) {
      error = test::larger(error, std::abs(stream[0][position - 1].item<double>() - loss));
      largest = std::max(largest, loss);
    }
    const double least = test::kLeastError * std::numeric_limits<float>::epsilon() * largest;
    check_prefixes(model, ids, exact, test::kErrorFactor * error + least);
  }
}

TEST_CASE("evaluate: lengths may differ from those of training") {
  const net::Network network = networks().at("two scales");
  const nn::Model model = test::random_model(network, 9);
  const Ids ids = random_ids(kLength, network.vocab_size);
  for (const net::Lengths lengths : {net::Lengths{2, 6, 0}, net::Lengths{8, 0, 0}}) {
    const Expected expected = read_pieces(model, lengths, pieces_of(ids, lengths.segment));
    Scored scored(model);
    scored.options.lengths = lengths;
    scored.options.chunk = 24;
    score(model, ids, scored);
    check_scored(scored, ids, expected.losses);
  }
}

TEST_CASE("evaluate: targets before first_target are read, but not scored or counted") {
  for_networks([](const net::Network& network, const nn::Model& model) {
    for (const std::int64_t size : {2, 6, 25, 41}) {
      const Ids ids = random_ids(size, network.vocab_size);
      for (const std::int64_t first_target : {0, 3, 18}) {
        const Piece piece{ids, 0, std::max<std::int64_t>(first_target, 1)};
        const Expected expected = read_pieces(model, network.lengths, {piece});
        for (const std::int64_t chunk : {1, 11, 1000}) {
          CAPTURE(size);
          CAPTURE(first_target);
          CAPTURE(chunk);
          check_reading(model, ids, expected, [&](Scored& scored) {
            scored.options.chunk = chunk;
            scored.options.first_target = first_target;
            score(model, ids, scored);
          });
        }
      }
    }
  });
}

TEST_CASE("evaluate: after a reset a stream is read as if it began there, in windows too") {
  for_networks([](const net::Network& network, const nn::Model& model) {
    const std::int64_t segment = network.lengths.segment;
    const Ids ids = random_ids(61, network.vocab_size);
    for (const std::int64_t reset : {1, 2, 7, 8, 20, 30, 60, 100}) {
      for (const std::int64_t stride : {0, 2}) {
        if (stride > 0 && has_memory(network)) continue;
        const Expected expected =
            read_pieces(model, network.lengths, pieces_of(ids, segment, stride, reset));
        for (const std::int64_t chunk : {1, 11, 1000}) {
          CAPTURE(reset);
          CAPTURE(stride);
          CAPTURE(chunk);
          check_reading(model, ids, expected, [&](Scored& scored) {
            scored.options.chunk = chunk;
            scored.options.reset = reset;
            scored.options.stride = stride;
            score(model, ids, scored);
            CHECK(scored.evaluation.reset == reset);
          });
        }
      }
    }
  });
}

TEST_CASE("evaluate: sliding windows score as windows that are read one by one") {
  for_networks([](const net::Network& network, const nn::Model& model) {
    if (has_memory(network)) return;
    const std::int64_t segment = network.lengths.segment;
    for (const std::int64_t size :
         {std::int64_t{3}, segment, segment + 1, segment + 2, std::int64_t{33}, std::int64_t{47}}) {
      const Ids ids = random_ids(size, network.vocab_size);
      for (const std::int64_t stride : {std::int64_t{1}, std::int64_t{3}, segment - 1, segment}) {
        const Expected expected =
            read_pieces(model, network.lengths, pieces_of(ids, segment, stride));
        for (const std::int64_t chunk : {1, 13, 1000}) {
          CAPTURE(size);
          CAPTURE(stride);
          CAPTURE(chunk);
          check_reading(model, ids, expected, [&](Scored& scored) {
            scored.options.chunk = chunk;
            scored.options.stride = stride;
            score(model, ids, scored);
            CHECK(scored.evaluation.stride == stride);
          });
        }
      }
    }
  });
}

TEST_CASE("evaluate: a stride of the segment is the same as no stride") {
  const net::Network network = networks().at("Multi-scale");
  const nn::Model model = test::random_model(network, 3);
  Scored with(model), without(model);
  with.options.stride = network.lengths.segment;
  const Ids ids = random_ids(60, network.vocab_size);
  score(model, ids, with);
  score(model, ids, without);
  CHECK(with.losses == without.losses);
}

TEST_CASE("check_stride: impossible strides are refused") {
  const auto check = [](const net::Network& network, std::int64_t stride) {
    check_stride(net::make_geometry(network, network.lengths), stride);
  };
  CHECK_NOTHROW(check(networks().at("vanilla"), 6));
  CHECK_THROWS_WITH_AS(check(networks().at("vanilla"), 7), doctest::Contains("expected 1 to 6"),
                       ConfigError);
  CHECK_THROWS_AS(check(networks().at("vanilla"), -1), ConfigError);
  for (const auto& [name, network] : networks()) {
    if (!has_memory(network)) continue;
    CHECK_THROWS_WITH_AS(check(network, 1), doctest::Contains("without memory"), ConfigError);
    CHECK_NOTHROW(check(network, 0));
  }
}

TEST_CASE("warm_up_segments: one segment of warm-up less would be noticed") {
  for_networks([](const net::Network& network, const nn::Model& model) {
    const net::Lengths lengths = network.lengths;
    const std::int64_t segments = warm_up_segments(net::make_geometry(network, lengths));
    if (segments == 0 || segments == kWholeStream) return;
    const std::int64_t warm_up = segments * lengths.segment;
    const Ids ids = random_ids(kLength, network.vocab_size);
    const Expected expected = read_stream(model, ids);
    double worst = 0;
    for (std::int64_t start = warm_up; worst < 1e-6 && start + lengths.segment < kLength;
         start += lengths.segment) {
      const std::int64_t from = start - warm_up + lengths.segment;
      const Piece late{
          {ids.begin() + from, ids.begin() + start + lengths.segment + 1}, from, start - from + 1};
      for (const auto& [position, loss] : read_pieces(model, lengths, {late}).losses) {
        worst = test::larger(worst, std::abs(loss - expected.losses.at(position)));
      }
    }
    CHECK(worst >= 1e-6);
  });
}

TEST_CASE("evaluate: several processes evaluate as one does" * doctest::test_suite("processes")) {
  constexpr int kProcesses = 3;
  for (const std::string name : {"two scales", "documents", "most used"}) {
    CAPTURE(name);
    const net::Network network = networks().at(name);
    const nn::Model model = test::random_model(network, 3);
    const Ids ids = random_ids(kLength, network.vocab_size);
    const std::int64_t segment = network.lengths.segment;
    std::int64_t warm_up = 0;
    for (const StreamPart& part :
         plan_parts((kLength - 2) / segment + 1,
                    warm_up_segments(net::make_geometry(network, network.lengths)), kProcesses)) {
      warm_up += (part.score_from - part.read_from) * segment;
    }
    // The first process reads the complete stream if the most-used states are kept.
    CHECK((warm_up > 0) == (name != "most used"));

    Scored together(model, false);
    std::mutex mutex;
    std::vector<Evaluation> found(kProcesses);
    std::vector<std::int64_t> shown(kProcesses);
    test::in_group(kProcesses, [&](machine::ProcessGroup& group) {
      const auto own = static_cast<std::size_t>(group.rank());
      EvaluationOptions options = together.options;
      options.group = &group;
      options.progress = [&](std::int64_t targets) { shown[own] = targets; };
      options.sink = [&](const ScoredTargets& targets) {
        const std::lock_guard<std::mutex> lock(mutex);
        together.options.sink(targets);
      };
      found[own] = evaluate(model, source_from(ids), options);
    });
    // The progress of the first process counts for all.
    CHECK(shown.front() > kLength * 9 / 10);
    CHECK(shown.front() < kLength);
    const Expected expected = read_stream(model, ids);
    for (const Evaluation& result : found) {
      together.evaluation = result;
      check_scored(together, ids, expected.losses);
      CHECK(result.warm_up == warm_up);
      CHECK(result.seconds > 0);
    }
  }
}

TEST_CASE("score_states: a softmax of several blocks keeps its order" *
          doctest::test_suite("numeric")) {
  net::Network network = test::small_network(net::Architecture::kVanilla, {1}, 0, {4, 0, 0});
  network.vocab_size = 200'000;  // 41 rows a block
  const nn::Model model = test::random_model(network, 3, at::kFloat);
  const Ids ids = random_ids(65, network.vocab_size);
  check_chunk(model, ids, read_stream(model, ids), 1e-4, 64);
}

TEST_CASE("evaluate: input that cannot be evaluated is refused") {
  const net::Network network = networks().at("two scales");
  const nn::Model model = test::random_model(network, 7);
  const auto evaluate_ids = [&](const Ids& ids, const net::Lengths& lengths) {
    EvaluationOptions options;
    options.lengths = lengths;
    evaluate(model, source_from(ids), options);
  };
  CHECK_THROWS_WITH_AS(
      evaluate_ids({}, network.lengths),
      "ids: expected at least 2 tokens, found 0; the first token is never predicted, so "
      "a single one cannot be scored",
      Error);
  CHECK_THROWS_AS(evaluate_ids({1}, network.lengths), Error);
  for (const std::int64_t wrong : {std::int64_t{-1}, network.vocab_size}) {
    Ids ids = random_ids(20, network.vocab_size);
    ids.back() = wrong;  // a target, never an input
    CHECK_THROWS_AS(evaluate_ids(ids, network.lengths), Error);
    ids.back() = 0;
    ids.front() = wrong;  // an input, never a target
    CHECK_THROWS_AS(evaluate_ids(ids, network.lengths), Error);
  }
  CHECK_THROWS_AS(evaluate_ids({1, 2, 3}, {3, 0, 0}), ConfigError);
}

TEST_CASE("evaluate: progress ends with every target") {
  const net::Network network = networks().at("two scales");
  const nn::Model model = test::random_model(network, 7);
  EvaluationOptions options;
  options.lengths = network.lengths;
  std::vector<std::int64_t> seen;
  options.progress = [&seen](std::int64_t done) { seen.push_back(done); };
  evaluate(model, source_from(random_ids(50, network.vocab_size)), options);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.back() == 49);
}

}  // namespace ql::eval
