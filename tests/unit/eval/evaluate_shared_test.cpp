// Evaluation by several processes against that by one.
#include <mutex>
#include <vector>

#include "eval/columns.h"
#include "unit/eval_support.h"
#include "unit/process_support.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

constexpr std::int64_t kTokens = 150;
constexpr int kProcesses = 3;

// Some documents begin with a segment of four tokens, some inside one.
const std::vector<std::int64_t>& document_starts() {
  static const std::vector<std::int64_t> starts{0, 5, 16, 17, 40, 44, 48, 52, 72, 80, 84, 101};
  return starts;
}

// The losses by position; a position that is scored twice keeps the sum.
struct KeptLosses {
  std::vector<double> values = std::vector<double>(kTokens);
  std::mutex mutex;
  LossSink sink() {
    return [this](std::int64_t position, const double* losses, std::int64_t count) {
      const std::lock_guard<std::mutex> lock(mutex);
      for (std::int64_t i = 0; i < count; ++i) {
        values.at(static_cast<std::size_t>(position + i)) += losses[i];
      }
    };
  }
};

void check_equal(const LossSums& found, const LossSums& expected) {
  CHECK(found.targets == expected.targets);
  CHECK(found.nll == doctest::Approx(expected.nll).epsilon(1e-10));
  CHECK(found.squares == doctest::Approx(expected.squares).epsilon(1e-10));
}

}  // namespace

TEST_CASE("evaluate_shared: several processes evaluate as one does") {
  for (const bool resets : {false, true}) {
    CAPTURE(resets);
    net::Network network =
        test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
    network.reset_memory_at_documents = resets;
    const nn::Model model = test::random_model(network, 3);
    const TokenSource source =
        source_from(random_ids(kTokens, network.vocab_size), document_starts);
    EvaluationOptions options;
    options.lengths = network.lengths;
    options.unknown = 4;
    KeptLosses alone, together;
    options.sink = alone.sink();
    const Evaluation expected = evaluate(model, source, options);
    const net::Geometry geometry = net::make_geometry(network, network.lengths);
    std::int64_t warm_up = 0;
    for (const Column& column :
         plan_columns((kTokens - 2) / 4 + 1, warm_up_segments(geometry), kProcesses).columns) {
      warm_up += (column.score_from - column.read_from) * network.lengths.segment;
    }
    CHECK(warm_up > 0);

    std::vector<Evaluation> found(kProcesses);
    std::vector<std::int64_t> shown(kProcesses);
    options.sink = together.sink();
    test::in_group(kProcesses, [&](machine::ProcessGroup& group) {
      EvaluationOptions own = options;
      own.group = &group;
      own.progress = [&](std::int64_t targets) {
        shown[static_cast<std::size_t>(group.rank())] = targets;
      };
      found[static_cast<std::size_t>(group.rank())] = evaluate(model, source, own);
    });
    // The progress of the first process counts for all.
    CHECK(shown.front() > kTokens * 9 / 10);
    CHECK(shown.front() < kTokens);
    for (const Evaluation& result : found) {
      check_equal(result, expected);
      check_equal(result.known, expected.known);
      CHECK(result.warm_up == warm_up);
    }
    for (std::size_t place = 0; place < alone.values.size(); ++place) {
      CHECK(together.values[place] == doctest::Approx(alone.values[place]).epsilon(1e-10));
    }
  }
}

}  // namespace ql::eval
