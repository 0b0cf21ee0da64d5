// Tests how divergences are described and counted, and the running loss.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "train/state.h"

namespace ql::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("Divergence: the reason is given in words") {
  const double none = std::nan("");
  CHECK(Divergence{6, 3.2, 0.5}.reason().empty());
  CHECK(Divergence{6, 3.2, 0.5, 3.2}.reason().empty());
  CHECK(Divergence{6, 3.2, 0.5, 3.1}.reason() == "the loss has jumped above 3.1");
  CHECK(Divergence{6, none, none}.reason() == "the loss is not a number");
  CHECK(Divergence{6, kInfinity, 1}.reason() == "the loss is infinite");
  CHECK(Divergence{6, 3.2, none}.reason() == "the gradient's norm is not a number");
  Divergence found{6, 3.2, kInfinity, kInfinity, "", {{"word_emb", 1.5}, {"layers.0", kInfinity}}};
  CHECK(
      std::string(Diverged(found).what())
          .find(
              "step 7: the gradient's norm is infinite (loss 3.2, gradient norm inf: word_emb 1.5, "
              "layers.0 inf); ") == 0);
  // When no norm is a number, the message has this once, and without a sign.
  const Divergence lost{6, -none, -none, kInfinity, "", {{"word_emb", none}, {"layers.0", -none}}};
  CHECK(std::string(Diverged(lost).what())
            .find("step 7: the loss is not a number (loss nan, gradient norm nan); ") == 0);
  found.tensor = "layers.0.weight";
  CHECK(std::string(Diverged(found).what())
            .find("step 7: layers.0.weight holds NaN or infinite values; ") == 0);
  // Only the loss is known when no gradient was computed.
  CHECK(std::string(Diverged({6, 16.53, {}, 13.2}).what())
            .find("step 7: the loss has jumped above 13.2 (loss 16.53); ") == 0);
  Divergence validation{6, none};
  validation.validation = true;
  CHECK(std::string(Diverged(validation).what())
            .find("step 7: the validation loss is not finite; ") == 0);
}

TEST_CASE("Diverged: the advice fits the run") {
  const auto advice = [](const DivergedRun& run) {
    const std::string text = Diverged({6, kInfinity, 1}, run).what();
    return text.substr(text.find("; ") + 2);
  };
  const std::string same = " a lower learning_rate, more warmup_steps";
  const std::string rollback = ", or, on the CPU, --set divergence=rollback";
  DivergedRun jumped;
  jumped.loss_jump = 10;
  CHECK(advice(jumped).find("loss_jump") == std::string::npos);
  CHECK(std::string(Diverged({6, 16.53, {}, 13.2}, jumped).what())
            .find("; if the losses of this text differ that much, set loss_jump above 10") !=
        std::string::npos);
  CHECK(advice({}) == "start again with" + same + ", a clip such as 0.25" + rollback);
  CHECK(advice({OnDivergence::kRollback}) ==
        "start again with" + same + ", or a clip such as 0.25");
  CHECK(advice({OnDivergence::kStop, 0.25, "run/last", 4000}) ==
        "go on with --resume, from run/last of step 4,000, and" + same + ", a clip below 0.25" +
            rollback);
  CHECK(advice({OnDivergence::kSkip, 0, "run/last", 6, "run/last and run/best",
                "run/step-00000003"}) ==
        "go on with --resume, from run/last of step 6, and" + same +
            ", or a clip such as 0.25; if a resume diverges at once, rename run/last and "
            "run/best: --resume then takes run/step-00000003");
}

TEST_CASE("OnDivergence: actions have names") {
  for (const OnDivergence action :
       {OnDivergence::kStop, OnDivergence::kSkip, OnDivergence::kRollback}) {
    CHECK(value_named<OnDivergence>(to_text(action), "here") == action);
  }
  CHECK_THROWS_WITH_AS(value_named<OnDivergence>("ignore", "here"),
                       doctest::Contains("here: 'ignore'"), FormatError);
}

TEST_CASE("RunningLoss: is a mean at first, and forgets later") {
  RunningLoss running;
  CHECK(running.largest(3) == kInfinity);
  running.add(2, 1);
  CHECK(running.mean == 2);
  CHECK(running.largest(3) == 5);
  CHECK(running.largest(0) == kInfinity);
  running.add(4 + 6, 2);
  CHECK(running.mean == doctest::Approx(4));
  running.add(0, 0);
  CHECK(running.steps == 3);
  for (int step = 3; step < 100; ++step) running.add(4, 1);
  CHECK(running.mean == doctest::Approx(4));
  CHECK(running.steps == 100);
  running.add(104, 1);
  CHECK(running.mean == doctest::Approx(5));
  CHECK(running.steps == 100);
  running.add(1000, 500);  // of more steps than count: only their mean
  CHECK(running.mean == doctest::Approx(2));
}

TEST_CASE("Divergences: ten close together are accepted, eleven are not") {
  Divergences same, spread, returning;
  for (int i = 0; i < 10; ++i) {
    same.add(40);
    CHECK_FALSE(same.too_many());
  }
  same.add(40);
  CHECK(same.too_many());
  CHECK(same.count == 11);
  for (std::int64_t step = 0; step < 1000; step += 10) {  // ten within any hundred
    spread.add(step);
    CHECK_FALSE(spread.too_many());
  }
  CHECK(spread.count == 100);
  CHECK(spread.recent.front() == 900);
  // After a rollback the same step comes again, and so does a step before it.
  for (int i = 0; i < 5; ++i) {
    returning.add(540);
    returning.add(20);
  }
  CHECK_FALSE(returning.too_many());
  returning.add(539);
  CHECK(returning.recent.size() == 6);  // the five at 20 no longer count
}

}  // namespace ql::train
