// Tests trainings that diverge, and resumes that change settings, through train/trainer.h.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/event_file.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/run_folder.h"
#include "train/training_step.h"
#include "unit/event_reader.h"
#include "unit/process_support.h"
#include "unit/torch_doctest.h"
#include "unit/train_workplace.h"

namespace ql::train {
namespace {

namespace fs = std::filesystem;
using test::check_same_result;
using test::Workplace;

// The data repeat a sentence of five words, which the network memorises. But segments 150 and 151
// consist of other words. There is one row.
struct OddPage : Workplace {
  static constexpr std::int64_t kSteps = 170;

  explicit OddPage(OnDivergence action) : Workplace(test::tiny_xl()) {
    pack_pages("pages", 1000, 150, 2);
    task.config.batch = 1;
    task.config.steps = kSteps;
    task.config.learning_rate = 0.01;
    task.config.checkpoint_interval = 20;
    task.config.eval_interval = 1000;
    task.config.divergence = action;
    task.config.loss_jump = 3;
  }

  // Packs data in which `count` segments, beginning with `odd`, consist of other words. The last of
  // their targets does not: it begins the next segment.
  void pack_pages(const char* name, std::size_t tokens, std::size_t odd, std::size_t count) const {
    std::vector<shard::TokenId> ids = test::repeating(tokens, 5);
    for (std::size_t i = 4 * odd + 1; i < 4 * (odd + count); ++i) {
      ids[i] = static_cast<shard::TokenId>(10 + i % 7);
    }
    test::pack(scratch / name, ids, 23);
  }
  TrainingState train(const char* data = "pages") const { return Workplace::train(data); }
  std::string refusal() const { return Workplace::refusal("pages"); }

  // Returns the records of divergences.
  std::vector<Json> divergences() const {
    std::vector<Json> found;
    for (const Json& record : log()) {
      if (record["kind"] == "divergence") found.push_back(record);
    }
    return found;
  }

  // Returns true if RUN/last is that of a training whose step `from` was the first to read `ahead`
  // segments further on. With `forgets`, it read them with empty memory.
  bool is_as_if_moved(std::int64_t from, std::int64_t ahead, const char* data = "pages",
                      bool forgets = false) const {
    TrainingConfig config = task.config;
    config.slices = config.passes = 1;
    shard::MultiReader reader({(scratch / data).string()});
    Streams streams(reader, 1, 4);
    TrainedNetwork learner(task.network, config), trained(task.network, config);
    const nn::Memory empty = learner.memory();
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (step == from) {
        streams.set_cursor(step, step + ahead);
        learner.set_memory(forgets ? empty : learner.memory());
      }
      const double progress = static_cast<double>(step) / kSteps;
      learner.step(streams, step, learning_rate(config, step, progress));
    }
    read_checkpoint(task.run / "last", trained);
    bool same = true;
    for (std::size_t i = 0; i < trained.moments().size(); ++i) {
      same = same && at::equal(trained.moments()[i].tensor, learner.moments()[i].tensor);
    }
    for (std::size_t i = 0; i < trained.memory().named().size(); ++i) {
      same =
          same && at::equal(trained.memory().named()[i].tensor, learner.memory().named()[i].tensor);
    }
    return same;
  }
};

// The data have four rows of the same sentence. In each row, five segments from 150 on consist of
// other words. A document starts at a different place in each row.
struct OddDocuments : Workplace {
  static constexpr std::size_t kRows = 4, kRow = 800, kOdd = 600, kBehind = 620;

  OddDocuments(net::Network network, OnDivergence action) : Workplace(network) {
    task.network.reset_memory_at_documents = true;
    task.config.batch = kRows;
    task.config.steps = 170;
    task.config.learning_rate = 0.01;
    task.config.checkpoint_interval = 20;
    task.config.eval_interval = 1000;
    task.config.divergence = action;
    task.config.loss_jump = 3;
  }

  // The documents of each row start here, counted from the row's first token.
  std::vector<std::vector<std::size_t>> starts;

  // Packs the data without tokens `from` to kBehind of every row. Both are the first of a sentence:
  // the remaining tokens are complete sentences, and the odd words are removed completely.
  void pack(const char* name, std::size_t from) const {
    const std::size_t length = kRow - (kBehind - from);
    std::vector<shard::TokenId> ids;
    std::vector<std::size_t> all;
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t i = 0; i < kRow; ++i) {
        const bool odd = i > kOdd && i < kBehind;
        if (i < from || i >= kBehind) {
          ids.push_back(static_cast<shard::TokenId>(odd ? 10 + i % 7 : i % 5));
        }
      }
      for (const std::size_t start : starts[row]) {
        const std::size_t left = start < from ? start : std::max(start, kBehind) - kBehind + from;
        if (row + left > 0 && (all.empty() || row * length + left > all.back())) {
          all.push_back(row * length + left);
        }
      }
    }
    test::pack(scratch / name, ids, 23, "made up", all);
  }
};

void check_same_files(const Workplace& a, const Workplace& b) {
  for (const char* name :
       {"last/model.safetensors", "last/optimizer.safetensors", "last/memory.safetensors"}) {
    CAPTURE(std::string(name));
    const bool same = a.file(name) == b.file(name);
    CHECK(same);
  }
}

// Returns true if RUN/last has the weights of a training that continues by hand from `checkpoint`
// with the present settings, and whose step reads segment `cursor`.
bool goes_on_by_hand(const Workplace& place, const fs::path& checkpoint, Rows rows,
                     std::int64_t cursor) {
  TrainingConfig config = place.task.config;
  const Json training = net::read_model_file(place.task.run / "last").training;
  config.slices = training["slices"].get<std::int64_t>();
  config.passes = training["passes"].get<std::int64_t>();
  shard::MultiReader reader({(place.scratch / "data").string()});
  Streams streams(reader, config.batch, place.task.network.lengths.segment);
  TrainedNetwork learner(place.task.network, config), trained(place.task.network, config);
  const std::int64_t first = read_checkpoint(checkpoint, learner, rows).step;
  streams.set_cursor(first, cursor);
  for (std::int64_t step = first; step < config.steps; ++step) {
    const double progress = static_cast<double>(step) / static_cast<double>(config.steps);
    learner.step(streams, step, learning_rate(config, step, progress));
  }
  read_checkpoint(place.task.run / "last", trained);
  bool same = true;
  for (std::size_t i = 0; i < trained.model().parameters().size(); ++i) {
    same = same && at::equal(trained.model().parameters()[i].tensor,
                             learner.model().parameters()[i].tensor);
  }
  return same;
}

}  // namespace

TEST_CASE("train: a jump of the loss stops before it changes the weights") {
  const OddPage page(OnDivergence::kStop);
  const std::string said = page.refusal();
  CHECK(said.find("step 151: the loss has jumped above ") == 0);
  CHECK(said.find("layers.2 ") != std::string::npos);
  CHECK(said.find("--set divergence=rollback") != std::string::npos);
  CHECK(read_state(page.task.run / "last").step == 140);
  const std::vector<Json> records = page.divergences();
  REQUIRE(records.size() == 1);
  CHECK(records[0]["step"] == 151);
  CHECK(records[0]["cursor"] == 150);
  CHECK(records[0]["action"] == "stop");
  CHECK(records[0]["loss"].get<double>() > 3);
  CHECK(records[0]["layers"].size() >= 4);
}

TEST_CASE("train: a jump changes the weights if loss_jump is 0") {
  OddPage page(OnDivergence::kStop);
  page.task.config.loss_jump = 0;
  CHECK(page.train().divergences.count == 0);
  CHECK(page.is_as_if_moved(0, 0));
}

TEST_CASE("train: steps that diverge are skipped") {
  const OddPage page(OnDivergence::kSkip);
  const TrainingState state = page.train();
  CHECK(state.step == OddPage::kSteps);
  CHECK(state.cursor == OddPage::kSteps + 2);
  CHECK(state.divergences.count == 2);
  const std::vector<Json> records = page.divergences();
  REQUIRE(records.size() == 2);
  CHECK(records[0]["cursor"] == 150);
  CHECK(records[1]["cursor"] == 151);
  CHECK(records[1]["step"] == 151);  // the same update, tried again
  CHECK(page.is_as_if_moved(150, 2));
  CHECK_FALSE(page.is_as_if_moved(0, 0));
}

TEST_CASE("train: a rollback continues from the newest checkpoint, after the step that diverged") {
  const OddPage page(OnDivergence::kRollback);
  const TrainingState state = page.train();
  CHECK(state.step == OddPage::kSteps);
  CHECK(state.cursor == OddPage::kSteps + 12);
  CHECK(state.divergences.count == 2);
  CHECK(page.is_as_if_moved(140, 12));
  // No step is in the log twice.
  std::int64_t before = 0;
  for (const Json& record : page.log()) {
    if (record["kind"] == "train") {
      CHECK(record["step"].get<std::int64_t>() > before);
      before = record["step"].get<std::int64_t>();
    }
  }
  CHECK(page.divergences().size() == 2);
}

TEST_CASE("train: after a rollback no event has a later time") {
  OddPage page(OnDivergence::kRollback);
  page.task.config.checkpoint_interval = 1000;  // so a rollback returns to the start
  page.train();
  CHECK_FALSE(page.divergences().empty());
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const double now = std::chrono::duration<double>(since_1970).count();
  const auto events = test::read_events(test::slurp(event_files(page.task.run).at(0)));
  for (const test::ReadEvent& event : events) CHECK(event.wall_time <= now);
}

TEST_CASE("train: a resume before or after a divergence changes nothing") {
  for (const OnDivergence action : {OnDivergence::kSkip, OnDivergence::kRollback}) {
    CAPTURE(to_text(action));
    const OddPage whole(action);
    whole.train();
    OddPage parts(action);
    for (const std::int64_t stop : {140, 160}) {
      parts.task.stop_at = stop;
      parts.train();
      parts.task.start = Start::kResume;
    }
    parts.task.stop_at = 0;
    parts.train();
    check_same_result(whole, parts);
    const Json a = state_to_json(read_state(whole.task.run / "last"));
    const Json b = state_to_json(read_state(parts.task.run / "last"));
    for (const char* key : {"step", "cursor", "running_loss", "divergences", "epoch", "position"}) {
      CHECK(a[key] == b[key]);
    }
  }
}

TEST_CASE("train: a rollback after a kill returns to the same checkpoint as without") {
  OddPage whole(OnDivergence::kRollback), killed(OnDivergence::kRollback);
  for (OddPage* page : {&whole, &killed}) {
    page->task.config.checkpoint_interval = 1000;
    page->task.config.eval_interval = 50;  // RUN/best, for example of step 150, is a checkpoint too
    test::pack(page->scratch / "sentences", test::repeating(90, 5), 23);
  }
  const auto train = [](const OddPage& page) { page.Workplace::train("pages", "sentences"); };
  train(whole);
  REQUIRE(whole.divergences().size() == 2);
  killed.task.stop_at = 20;
  train(killed);
  fs::copy(killed.task.run / "last", killed.scratch / "at-20");
  killed.task.start = Start::kResume;
  killed.task.stop_at = 0;
  train(killed);
  REQUIRE(read_state(killed.task.run / "best").step == OddPage::kSteps);
  // The training is then killed right before it writes its next RUN/last.
  fs::remove_all(killed.task.run / "last");
  fs::copy(killed.scratch / "at-20", killed.task.run / "last");
  train(killed);
  check_same_result(whole, killed);
}

TEST_CASE("train: a rollback into another epoch starts with an empty memory") {
  const OddPage page(OnDivergence::kRollback);
  // An epoch has 152 segments. In the first one the network has learned nothing yet, so the other
  // words do not make the loss jump. In the second one segment 155 makes it jump, and the
  // checkpoint of step 140 belongs to the first epoch.
  page.pack_pages("short", 609, 3, 1);
  const TrainingState state = page.train("short");
  CHECK(state.divergences.count == 1);
  CHECK(state.epoch == 1);
  CHECK(page.divergences().at(0)["cursor"] == 155);
  CHECK(page.is_as_if_moved(140, 16, "short", true));
  CHECK_FALSE(page.is_as_if_moved(140, 16, "short", false));
}

TEST_CASE("train: the memory of a finished epoch is not carried past the start of the next") {
  // In the first epoch the network has learned nothing yet, so the other words do not make the loss
  // jump.
  SUBCASE("a rollback to the last step of an epoch") {
    const OddPage page(OnDivergence::kRollback);
    page.pack_pages("short", 561, 5, 1);  // 140 segments an epoch
    const TrainingState state = page.train("short");
    CHECK(state.epoch == 1);
    REQUIRE(page.divergences().size() == 1);
    CHECK(page.divergences()[0]["cursor"] == 145);
    CHECK(page.is_as_if_moved(140, 6, "short", true));
    CHECK_FALSE(page.is_as_if_moved(140, 6, "short", false));
  }
  SUBCASE("a skipped first step of an epoch") {
    const OddPage page(OnDivergence::kSkip);
    page.pack_pages("short", 601, 0, 1);  // 150 segments an epoch
    page.train("short");
    REQUIRE(page.divergences().size() == 1);
    CHECK(page.divergences()[0]["cursor"] == 150);
    CHECK(page.is_as_if_moved(150, 1, "short", true));
    CHECK_FALSE(page.is_as_if_moved(150, 1, "short", false));
  }
}

TEST_CASE("train: after skipped data, a memory that is reset equals that without the data") {
  for (const OnDivergence action : {OnDivergence::kSkip, OnDivergence::kRollback}) {
    CAPTURE(to_text(action));
    for (net::Network network :
         {test::tiny_xl(), test::tiny_ql(), test::tiny_compressive(net::Pool::kMean)}) {
      CAPTURE(net::to_text(network.architecture));
      network.lengths.memory = 12;
      OddDocuments odd(network, action), without(network, OnDivergence::kStop);
      // `first` is the first token that is left out: of the odd segments, or after the checkpoint.
      const std::size_t first = action == OnDivergence::kSkip ? OddDocuments::kOdd : 560;
      odd.starts = without.starts = {
          {0, 300, first - 2},          // two tokens of the memory are of the document
          {0, first - 9, first + 3},    // none is
          {0, OddDocuments::kBehind},   // none is, and the next segment begins it
          {0, first - 30, first - 10},  // all newer ones are
      };
      odd.pack("odd", OddDocuments::kBehind);
      without.pack("without", first);
      CHECK(odd.train("odd").divergences.count == 5);
      CHECK(without.train("without").divergences.count == 0);
      check_same_files(odd, without);
    }
  }
}

TEST_CASE("train: each of several processes forgets other documents in its rows" *
          doctest::test_suite("processes")) {
  OddDocuments odd(test::tiny_xl(), OnDivergence::kSkip);
  OddDocuments without(test::tiny_xl(), OnDivergence::kStop);
  odd.starts = without.starts = {{0}, {0, 603}, {0, 598}, {0, 620}};
  odd.pack("rows", OddDocuments::kBehind);
  without.pack("rows", OddDocuments::kOdd);
  for (const OddDocuments* place : {&odd, &without}) {
    test::in_group(2, [&](machine::ProcessGroup& group) {
      TrainingTask task = place->task;
      task.group = &group;
      task.config.slices = 1;
      shard::MultiReader data({(place->scratch / "rows").string()});
      shard::MultiReader valid({(place->scratch / "valid").string()});
      train(task, data, valid);
    });
  }
  CHECK(read_state(odd.task.run / "last").divergences.count == 5);
  check_same_files(odd, without);
}

TEST_CASE("train: repeated divergences end the training") {
  for (const OnDivergence action : {OnDivergence::kSkip, OnDivergence::kRollback}) {
    CAPTURE(to_text(action));
    OddPage page(action);
    page.task.config.learning_rate = 1e30;
    page.task.config.warmup_steps = 0;
    page.task.config.clip = 0;
    const std::string said = page.refusal();
    CHECK(said.find("step 2: ") == 0);
    const std::vector<Json> records = page.divergences();
    REQUIRE(records.size() == 11);
    CHECK(records[9]["action"] == to_text(action));
    CHECK(records[10]["action"] == "stop");
    CHECK(records[10]["number"] == 11);
    // Only the start of a training that may return to it is saved.
    CHECK(fs::exists(page.task.run / "last") == (action == OnDivergence::kRollback));
  }
}

TEST_CASE("train: weights that are not finite are never saved") {
  for (const OnDivergence action :
       {OnDivergence::kStop, OnDivergence::kSkip, OnDivergence::kRollback}) {
    CAPTURE(to_text(action));
    OddPage page(action);
    page.task.config.learning_rate = 1e300;
    page.task.config.warmup_steps = 0;
    page.task.config.checkpoint_interval = 1;
    CHECK(page.refusal().find("holds NaN or infinite values") != std::string::npos);
    const bool saved = fs::exists(page.task.run / "last");
    CHECK(saved == (action == OnDivergence::kRollback));
    if (saved) {
      CHECK(read_state(page.task.run / "last").step == 0);
      CHECK_NOTHROW(verify_checkpoint(page.task.run / "last"));
      CHECK(page.divergences().size() == 11);
      CHECK(page.divergences()[0]["step"] == 1);
      CHECK(page.divergences()[0]["cursor"] == 0);
    }
  }
}

// In step 11 the learning rate is so high that it destroys the weights. The loss of this step is
// good, because it is computed before they change.
TEST_CASE("train: weights that a step has destroyed are never saved") {
  struct Case {
    const char* name;
    double learning_rate;
    const char* said;
    std::function<void(TrainingTask&)> saves;  // decides when a checkpoint would come
  };
  const Case cases[] = {
      {"interval", 3, "step 12: the loss has jumped above ",
       [](TrainingTask& task) { task.config.checkpoint_interval = 1; }},
      {"minutes", 3, "step 12: the loss has jumped above ",
       [](TrainingTask& task) { task.config.checkpoint_minutes = 1e-9; }},
      {"--stop-at", 3, "step 12: the loss has jumped above ",
       [](TrainingTask& task) { task.stop_at = 11; }},
      {"infinite", 1e30, "step 12: the loss is not a number",
       [](TrainingTask& task) { task.stop_at = 11; }},
      {"end", 3, "step 12: the loss has jumped above ",
       [](TrainingTask& task) { task.config.steps = 11; }},
      {"validation", 3, "step 12: the loss has jumped above ",
       [](TrainingTask& task) { task.config.eval_interval = 11; }},
      {"infinite validation", 1e30, "step 11: the validation loss is not finite; ",
       [](TrainingTask& task) { task.config.eval_interval = 11; }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.name);
    OddPage page(OnDivergence::kStop);
    page.task.config.checkpoint_interval = 1000;
    page.task.config.clip = 0.25;
    page.task.config.warmup_steps = 0;
    page.task.config.schedule = Schedule::kConstant;
    page.task.config.decay_fraction = 0;
    page.task.stop_at = 10;
    page.train();
    page.task.start = Start::kResume;
    page.task.stop_at = 0;
    const TrainingConfig good = page.task.config;
    page.task.config.learning_rate = one.learning_rate;
    one.saves(page.task);
    const std::string said = page.refusal();
    CHECK(said.find(one.said) == 0);
    CHECK(said.find("go on with --resume, from " + (page.task.run / "last").string() +
                    " of step 10, and a lower learning_rate") != std::string::npos);
    CHECK(said.find("a clip below 0.25") != std::string::npos);
    CHECK(read_state(page.task.run / "last").step == 10);
    CHECK_FALSE(fs::exists(page.task.run / "best"));
    const std::vector<Json> records = page.divergences();
    REQUIRE(records.size() == 1);
    CHECK(records[0]["action"] == "stop");
    CHECK(records[0]["loss"].is_number() == (one.learning_rate == 3));
    CHECK_FALSE(records[0].contains("layers"));
    // The advice works.
    page.task.config = good;
    page.task.stop_at = 20;
    CHECK(page.train().step == 20);
  }
}

TEST_CASE("train: after a validation that diverged, a rollback continues and a skip cannot") {
  for (const OnDivergence action : {OnDivergence::kSkip, OnDivergence::kRollback}) {
    CAPTURE(to_text(action));
    OddPage page(action);
    page.task.config.learning_rate = 1e30;
    page.task.config.warmup_steps = 0;
    page.task.config.eval_interval = 1;
    CHECK(page.refusal().find("step 1: the validation loss is not finite; ") == 0);
    const std::vector<Json> records = page.divergences();
    REQUIRE(records.size() == (action == OnDivergence::kSkip ? 1 : 11));
    CHECK(records[0]["action"] == (action == OnDivergence::kSkip ? "stop" : "rollback"));
    for (std::size_t i = 0; i < records.size(); ++i) CHECK(records[i]["cursor"] == i);
  }
}

// The odd segments come after a checkpoint that no validation precedes, so it has to wait.
TEST_CASE("train: a segment that diverges before a checkpoint is skipped like any other") {
  OddPage page(OnDivergence::kSkip);
  page.task.config.checkpoint_interval = 50;
  CHECK(page.train().divergences.count == 2);
  CHECK(page.divergences()[0]["step"] == 151);
  CHECK(page.is_as_if_moved(150, 2));
}

TEST_CASE("train: a resume that diverges at once is advised to take an older checkpoint") {
  OddPage page(OnDivergence::kStop);
  page.task.config.loss_jump = 0;  // so weights that are destroyed are saved
  page.task.config.keep_last = 2;
  page.task.stop_at = 10;
  page.train();
  page.task.start = Start::kResume;
  page.task.stop_at = 11;
  const double good = page.task.config.learning_rate;
  page.task.config.learning_rate = 3;
  page.train();
  page.task.config.learning_rate = good;
  page.task.config.loss_jump = 3;
  page.task.stop_at = 12;
  const std::string said = page.refusal();
  CHECK(said.find("step 12: the loss has jumped") == 0);
  const fs::path last = page.task.run / "last", newest = step_folder(page.task.run, 11);
  CHECK(said.find("rename " + last.string() + " and " + newest.string() + ": --resume then takes " +
                  step_folder(page.task.run, 10).string()) != std::string::npos);
  // The advice works.
  fs::rename(last, page.task.run / "bad");
  fs::rename(newest, page.task.run / "worse");
  CHECK(page.train().step == 12);
}

TEST_CASE("train: a device cannot skip steps") {
  Workplace place(test::tiny_xl());
  place.task.compute.device = c10::Device(c10::DeviceType::CUDA, 0);
  place.task.config.divergence = OnDivergence::kSkip;
  CHECK(place.refusal().find("divergence: skip needs a step's loss") != std::string::npos);
  CHECK_FALSE(fs::exists(place.task.run));
}

TEST_CASE("train: kept checkpoints are complete, and a training continues from the newest") {
  Workplace whole(test::tiny_ql()), cut(test::tiny_ql());
  for (Workplace* place : {&whole, &cut}) {
    place->task.config.keep_last = 2;
    place->task.config.keep_every = 10;
  }
  whole.train();
  CHECK(kept_steps(whole.task.run) == std::vector<std::int64_t>{10, 15, 20});
  CHECK(read_state(step_folder(whole.task.run, 10)).step == 10);
  CHECK_NOTHROW(verify_checkpoint(step_folder(whole.task.run, 15)));

  // The training is killed after RUN/last of step 15 was written, but not its second name. Later
  // RUN/last is lost.
  cut.task.stop_at = 15;
  cut.train();
  fs::remove_all(step_folder(cut.task.run, 15));
  cut.task.start = Start::kResume;
  cut.train();
  CHECK(kept_steps(cut.task.run) == std::vector<std::int64_t>{10, 15});
  fs::remove_all(cut.task.run / "last");
  cut.task.stop_at = 0;
  cut.train();
  check_same_result(whole, cut);
  CHECK(kept_steps(cut.task.run) == kept_steps(whole.task.run));
}

TEST_CASE("train: checkpoints also come by the clock") {
  Workplace place(test::tiny_xl());
  place.task.config.checkpoint_interval = 1000;
  place.task.config.checkpoint_minutes = 1e-9;
  place.task.config.keep_last = 3;
  place.train();
  CHECK(kept_steps(place.task.run) == std::vector<std::int64_t>{18, 19, 20});
  place.task.config.checkpoint_minutes = 1000;
  place.task.start = Start::kForce;
  place.train();
  CHECK(kept_steps(place.task.run) == std::vector<std::int64_t>{20});
}

TEST_CASE("train: a resume may change keys that control the remaining steps") {
  Workplace place(test::tiny_ql());
  place.task.stop_at = 10;
  place.train();
  fs::copy(place.task.run / "last", place.scratch / "at-10");
  place.task.start = Start::kResume;
  place.task.stop_at = 0;
  TrainingConfig& config = place.task.config;
  config.steps = 30;
  config.learning_rate = 0.001;
  config.min_lr_ratio = 0.5;
  config.warmup_steps = 12;
  config.clip = 0.1;
  config.keep_last = 2;
  config.divergence = OnDivergence::kSkip;
  CHECK(place.train().step == 30);
  CHECK(goes_on_by_hand(place, place.scratch / "at-10", Rows::kSame, 10));
  CHECK(net::read_model_file(place.task.run / "last").training["learning_rate"] == 0.001);
  config.learning_rate = 0.0011;
  CHECK_FALSE(goes_on_by_hand(place, place.scratch / "at-10", Rows::kSame, 10));
  config.steps = 5;  // fewer than are finished: it ends at once
  CHECK(place.train().step == 30);
}

TEST_CASE("train: another batch continues at the same part of the epoch, with empty memories") {
  Workplace place(test::tiny_ql());  // 16 steps an epoch with 3 rows, 9 with 5
  place.task.stop_at = 26;
  place.task.config.steps = 40;
  place.train();
  fs::copy(place.task.run / "last", place.scratch / "at-26");
  place.task.start = Start::kResume;
  place.task.stop_at = 0;
  place.task.config.batch = 5;
  place.task.config.divergence = OnDivergence::kRollback;  // has to write a checkpoint at once
  const TrainingState state = place.train();
  const std::int64_t moved = 9 + 10 * 9 / 16;
  CHECK(state.step == 40);
  CHECK(state.cursor == moved + 14);
  CHECK(goes_on_by_hand(place, place.scratch / "at-26", Rows::kOther, moved));
  CHECK_FALSE(goes_on_by_hand(place, place.scratch / "at-26", Rows::kOther, moved + 1));
}

}  // namespace ql::train
