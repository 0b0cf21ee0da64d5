// Tests complete trainings: resumes, damaged checkpoints, and refusals.

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"
#include "train/trainer.h"
#include "train/training_step.h"
#include "unit/process_support.h"
#include "unit/scratch.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"
#include "unit/train_workplace.h"

namespace ql::train {

namespace fs = std::filesystem;
using test::check_same_result;
using test::Workplace;

TEST_CASE("train: twenty steps are ten, a resume and ten, bit for bit") {
  net::Network resets = test::tiny_ql();
  resets.reset_memory_at_documents = true;
  for (const net::Network& network : {test::tiny_ql(), test::tiny_xl(), resets}) {
    CAPTURE(net::to_text(network.architecture));
    const Workplace whole(network);
    const TrainingState end = whole.train();
    CHECK(end.step == 20);
    CHECK(end.best.has_value());
    CHECK(whole.log().size() == 7 + 3);  // steps 3, 6 .. 18, 20; validations 7, 14, 20

    Workplace parts(network);
    // The stops are at the end of an epoch, between two records of the log, and right after a
    // validation.
    for (const std::int64_t stop : {3, 7, 10, 16}) {
      parts.task.stop_at = stop;
      CHECK(parts.train().step == stop);
      parts.task.start = Start::kResume;
    }
    parts.task.stop_at = 0;
    CHECK(parts.train().step == 20);
    check_same_result(whole, parts);
  }
}

TEST_CASE("train: a resume keeps the slices and passes of its checkpoint, whatever the threads") {
  const int threads = at::get_num_threads();
  Workplace whole(test::tiny_ql()), parts(test::tiny_ql());
  whole.task.config.slices = parts.task.config.slices = 2;
  whole.task.config.passes = parts.task.config.passes = 2;
  whole.train();
  parts.task.stop_at = 10;
  parts.train();
  parts.task.start = Start::kResume;
  parts.task.stop_at = 0;
  parts.task.config.slices = parts.task.config.passes = 0;
  at::set_num_threads(threads + 1);
  parts.train();
  at::set_num_threads(threads);
  check_same_result(whole, parts);
  const Json training = net::read_model_file(parts.task.run / "last").training;
  CHECK(training["slices"] == 2);
  CHECK(training["passes"] == 2);
}

TEST_CASE("train: a resume chooses slices and passes anew if the command line sets 0") {
  Workplace place(test::tiny_ql());
  place.task.config.slices = place.task.config.passes = 2;
  place.task.stop_at = 5;
  place.train();
  place.task.start = Start::kResume;
  place.task.stop_at = 6;
  place.task.config.slices = place.task.config.passes = 0;
  place.task.named = {"slices", "passes"};
  place.train();
  // Three segments of 4 tokens are too few for two slices, and fit into memory.
  const Json training = net::read_model_file(place.task.run / "last").training;
  CHECK(training["slices"] == 1);
  CHECK(training["passes"] == 1);
  const std::vector<Json> log = place.log();
  const auto change = std::find_if(log.begin(), log.end(),
                                   [](const Json& record) { return record["kind"] == "resume"; });
  REQUIRE(change != log.end());
  CHECK((*change)["step"] == 5);
  const Json from_two_to_one = {{"before", 2}, {"after", 1}};
  CHECK((*change)["changed"].size() == 2);
  CHECK((*change)["changed"]["slices"] == from_two_to_one);
  CHECK((*change)["changed"]["passes"] == from_two_to_one);
}

TEST_CASE("train: several processes choose slices for the one with the most rows" *
          doctest::test_suite("processes")) {
  const test::WithThreads two(2);
  const Workplace place(test::tiny_xl());
  test::pack(place.scratch / "rows", test::scrambled(1000, 23), 23);
  test::in_group(2, [&](machine::ProcessGroup& group) {
    TrainingTask task = place.task;
    task.group = &group;
    // The first process has 31 rows and the second one 32. A slice has at least 64 tokens: with
    // segments of 4 tokens, these are 16 rows.
    task.config.batch = 63;
    task.config.steps = 1;
    shard::MultiReader data({(place.scratch / "rows").string()});
    shard::MultiReader valid({(place.scratch / "valid").string()});
    train(task, data, valid);
  });
  CHECK(net::read_model_file(place.task.run / "last").training["slices"] == 2);
}

TEST_CASE("train: a training that was killed while RUN/last had no name continues") {
  const int threads = at::get_num_threads();
  Workplace whole(test::tiny_ql()), killed(test::tiny_ql());
  whole.task.config.slices = killed.task.config.slices = 2;
  whole.task.config.passes = killed.task.config.passes = 2;
  whole.train();
  killed.task.stop_at = 5;  // before there is a RUN/best
  killed.train();
  // This is the state between the two renames on a file system that cannot exchange names.
  fs::rename(killed.task.run / "last", killed.task.run / ".last.0a1b2c3d.4242.tmp.old");
  fs::create_directory(killed.task.run / ".last.0a1b2c3d.4242.tmp");
  CHECK(killed.refusal().find("holds a checkpoint") != std::string::npos);
  fs::rename(killed.task.run / "last", killed.task.run / ".last.0a1b2c3d.4242.tmp.old");
  killed.task.start = Start::kResume;
  killed.task.stop_at = 0;
  killed.task.config.slices = killed.task.config.passes = 0;
  at::set_num_threads(threads + 1);
  killed.train();
  at::set_num_threads(threads);
  check_same_result(whole, killed);
  for (const fs::directory_entry& entry : fs::directory_iterator(killed.task.run)) {
    const std::string name = entry.path().filename().string();
    CHECK((name == ".lock" || name.front() != '.'));
  }
}

TEST_CASE("find_resume_point: a damaged checkpoint costs some steps") {
  Workplace whole(test::tiny_xl()), place(test::tiny_xl());
  whole.task.config.keep_last = place.task.config.keep_last = 2;
  whole.train();
  place.task.stop_at = 10;  // RUN/best is of step 7
  place.train();
  place.task.start = Start::kResume;
  place.damage("last/memory.safetensors");
  const std::string bytes = place.file("last/memory.safetensors");
  SUBCASE("one of the same step remains") {}
  SUBCASE("RUN/best remains") { place.damage("step-00000010/model.safetensors"); }
  SUBCASE("an older one remains") {
    fs::remove(place.task.run / "step-00000010/model.json");
    place.damage("best/state.json");
  }
  place.task.stop_at = 11;
  place.train();
  CHECK(place.file("last.damaged/memory.safetensors") == bytes);
  place.task.stop_at = 0;
  place.train();
  check_same_result(whole, place);
  CHECK(kept_steps(place.task.run) == kept_steps(whole.task.run));
}

TEST_CASE("find_resume_point: if every checkpoint is damaged, a resume leaves them unchanged") {
  Workplace place(test::tiny_xl());
  place.task.stop_at = 10;
  place.train();
  place.task.start = Start::kResume;
  place.damage("last/memory.safetensors");
  place.damage("best/model.safetensors");
  const std::string said = place.refusal();
  CHECK(said.find((place.task.run / "last/memory.safetensors: checksum mismatch").string()) == 0);
  CHECK(said.find("no other checkpoint of the training is complete") != std::string::npos);
  CHECK(fs::exists(place.task.run / "last"));
  CHECK_FALSE(place.log().empty());
}

TEST_CASE("train: a finished training has a RUN/last, whatever it continues from") {
  Workplace place(test::tiny_xl());
  const std::int64_t best = place.train().best->step;
  fs::remove_all(place.task.run / "last");
  place.task.start = Start::kResume;
  place.task.config.steps = best;
  CHECK(place.train().step == best);
  CHECK(read_state(place.task.run / "last").step == best);
}

TEST_CASE("find_resume_point: a checkpoint of another version is not damaged") {
  Workplace place(test::tiny_xl());
  place.task.stop_at = 10;  // RUN/best is of step 7
  place.train();
  place.task.start = Start::kResume;
  Json state = parse_json(place.file("last/state.json"), "state.json");
  state["version"] = 2;
  test::spill(place.task.run / "last/state.json", dump_json(state));
  CHECK(place.refusal().find("version is 2") != std::string::npos);
  CHECK(fs::exists(place.task.run / "last"));
}

TEST_CASE("train: a resume with other settings does not replace a better RUN/best") {
  Workplace place(test::tiny_xl());
  place.task.config.eval_interval = 2;
  place.task.stop_at = 4;
  place.train();
  fs::copy(place.task.run / "last", place.scratch / "at-four");
  place.task.start = Start::kResume;
  place.task.stop_at = 14;
  const Best best = place.train().best.value();
  REQUIRE(best.step > 6);
  const std::string weights = place.file("best/model.safetensors");
  // This is the folder of a training that was killed before its next RUN/last; a lower rate learns
  // less.
  fs::remove_all(place.task.run / "last");
  fs::copy(place.scratch / "at-four", place.task.run / "last");
  place.task.config.learning_rate = 0.0003;
  const TrainingState state = place.train();
  REQUIRE(state.best.has_value());
  CHECK(state.best->step > 4);
  CHECK(state.best->loss > best.loss);
  CHECK(place.file("best/model.safetensors") == weights);
  // The log is only of this training.
  double lowest = 1e9;
  for (const Json& record : place.log()) {
    if (record["kind"] == "validation") {
      CHECK(record["best"] == (record["loss"].get<double>() < lowest));
      lowest = std::min(lowest, record["loss"].get<double>());
    }
  }
  CHECK(state.best->loss == lowest);

  // A damaged RUN/best is replaced.
  test::spill(place.task.run / "best/optimizer.safetensors", "");
  place.task.stop_at = 16;
  const TrainingState end = place.train();
  REQUIRE(end.best->step > 14);
  CHECK(read_state(place.task.run / "best").step == end.best->step);

  // A RUN/best that a newer program wrote may be better, so it stays.
  Json newer = parse_json(place.file("best/state.json"), "state.json");
  newer["version"] = 2;
  test::spill(place.task.run / "best/state.json", dump_json(newer));
  place.task.stop_at = 20;
  REQUIRE(place.train().best->step > 16);
  CHECK(place.file("best/state.json") == dump_json(newer));
}

TEST_CASE("train: a finished training stays as it is") {
  Workplace place(test::tiny_xl());
  place.train();
  const std::string log = place.file("log.jsonl"), state = place.file("last/state.json");
  place.task.start = Start::kResume;
  CHECK(place.train().step == 20);
  CHECK(place.file("log.jsonl") == log);
  CHECK(place.file("last/state.json") == state);
}

TEST_CASE("train: a training that lost its later half repeats it") {
  Workplace whole(test::tiny_ql()), killed(test::tiny_ql());
  whole.train();
  killed.task.stop_at = 10;
  killed.train();
  fs::copy(killed.task.run / "last", killed.scratch / "at-ten");
  killed.task.start = Start::kResume;
  killed.task.stop_at = 0;
  killed.train();
  // It looks as if the process had died before its next checkpoint, with half a line in the log.
  fs::remove_all(killed.task.run / "last");
  fs::copy(killed.scratch / "at-ten", killed.task.run / "last");
  test::spill(killed.task.run / "log.jsonl", killed.file("log.jsonl") + "{\"kind\":");
  killed.train();
  check_same_result(whole, killed);
}

TEST_CASE("train: the best checkpoint is the one with the lowest validation loss") {
  Workplace place(test::tiny_xl());
  place.task.config.eval_interval = 2;
  const TrainingState state = place.train();
  double lowest = 1e9;
  std::int64_t lowest_step = 0;
  for (const Json& record : place.log()) {
    if (record["kind"] == "validation") {
      CHECK(record["targets"] == 89);
      const bool better = record["loss"].get<double>() < lowest;
      CHECK(record["best"] == better);
      lowest_step = better ? record["step"].get<std::int64_t>() : lowest_step;
      lowest = std::min(lowest, record["loss"].get<double>());
    }
  }
  REQUIRE(state.best.has_value());
  CHECK(state.best->loss == lowest);
  CHECK(state.best->step == lowest_step);
  CHECK(read_state(place.task.run / "best").step == lowest_step);
}

TEST_CASE("train: a resume refuses settings that would make another training") {
  Workplace place(test::tiny_ql());
  place.task.stop_at = 5;
  place.train();
  place.task.start = Start::kResume;
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const TrainingTask same = place.task;
  place.task.network.init_std = 0.2;
  place.task.config.seed = 6;
  place.task.config.adam.beta1 = 0.8;
  const std::string said = place.refusal();
  CHECK(contains(said, "init_std was "));
  CHECK(contains(said, "seed was 5 and is now 6"));
  CHECK(contains(said, "adam_beta1 was 0.9 and is now 0.8"));
  CHECK(contains(said, "--init"));

  place.task = same;
  test::pack(place.scratch / "other", test::scrambled(201, 23), 23);
  CHECK(contains(place.refusal("other"), "--data was"));
  CHECK(contains(place.refusal("data", "other"), "--valid was"));

  place.task.config.log_interval = 5;
  place.task.config.checkpoint_interval = 2;
  place.task.config.eval_interval = 3;
  place.task.stop_at = 6;
  CHECK(place.refusal().empty());
}

TEST_CASE("train: another precision is accepted if the command line names it") {
  Workplace place(test::tiny_ql());
  place.task.stop_at = 5;
  place.train();
  place.task.start = Start::kResume;
  place.task.stop_at = 0;
  place.task.config.precision = machine::Precision::kBfloat16;
  const std::string said = place.refusal();
  CHECK(said.find("precision was \"float32\" and is now \"bfloat16\"") != std::string::npos);
  CHECK(said.find("--set precision=float32 to continue as before, or --set precision=bfloat16") !=
        std::string::npos);
  place.task.named = {"steps", "precision"};
  CHECK(place.refusal().empty());
  CHECK(net::read_model_file(place.task.run / "last").training["precision"] == "bfloat16");
  const std::vector<Json> log = place.log();
  const auto change = std::find_if(log.begin(), log.end(),
                                   [](const Json& record) { return record["kind"] == "resume"; });
  REQUIRE(change != log.end());
  CHECK((*change)["step"] == 5);
  CHECK((*change)["changed"] ==
        Json{{"precision", {{"before", "float32"}, {"after", "bfloat16"}}}});
  // Other differences are refused as ever.
  place.task.config.seed = 6;
  CHECK(place.refusal().find("seed was 5 and is now 6") != std::string::npos);
  place.task.named = {"seed"};
  place.task.config.precision = machine::Precision::kFloat32;
  CHECK(place.refusal().find("use the same preset") != std::string::npos);
}

TEST_CASE("train: a folder with a checkpoint is replaced only with force") {
  Workplace place(test::tiny_xl());
  place.task.stop_at = 8;
  place.train();
  const std::string said = place.refusal();
  CHECK(said.find("--resume") != std::string::npos);
  CHECK(said.find("--force") != std::string::npos);
  place.task.start = Start::kForce;
  place.task.stop_at = 2;
  CHECK(place.train().step == 2);
  CHECK_FALSE(fs::exists(place.task.run / "best"));
  CHECK(read_state(place.task.run / "last").step == 2);
}

TEST_CASE("train: a resume without a checkpoint starts a new training") {
  Workplace place(test::tiny_xl());
  place.task.start = Start::kResume;
  place.task.stop_at = 2;
  CHECK(place.train().step == 2);
}

TEST_CASE("train: a resume from a checkpoint without a key of the training is refused") {
  Workplace place(test::tiny_ql());
  place.task.stop_at = 2;
  place.train();
  place.task.start = Start::kResume;
  const fs::path last = place.task.run / "last";
  const net::ModelFile whole = net::read_model_file(last);
  const std::pair<const char*, const char*> refusals[] = {
      {"precision", "training: the key 'precision' is missing"},
      {"seed", "cannot resume: seed was absent and is"},
      {"slices", "the key 'slices' is missing"}};
  for (const auto& [key, words] : refusals) {
    net::ModelFile lacking = whole;
    CHECK(lacking.training.erase(key) == 1);
    test::spill(last / "model.json", dump_json(net::model_file_to_json(lacking)));
    net::write_state_file(
        last, net::read_state_file(last),
        {"model.json", "model.safetensors", "optimizer.safetensors", "memory.safetensors"});
    CHECK(place.refusal().find(words) != std::string::npos);
  }
}

TEST_CASE("train: a resume continues from the best checkpoint if there is no last one") {
  Workplace whole(test::tiny_ql()), killed(test::tiny_ql());
  whole.train();
  // It looks as if the process had been killed between the first validation and the first RUN/last.
  killed.task.config.checkpoint_interval = 1000;
  killed.task.stop_at = 7;
  killed.train();
  REQUIRE(fs::exists(killed.task.run / "best"));
  fs::remove_all(killed.task.run / "last");
  killed.task.start = Start::kResume;
  killed.task.stop_at = 0;
  killed.train();
  check_same_result(whole, killed);
}

TEST_CASE("train: validation data without a target is refused before the first step") {
  Workplace place(test::tiny_xl());
  test::pack(place.scratch / "one", test::scrambled(1, 23), 23);
  CHECK(place.refusal("data", "one").find("expected at least 2 tokens") != std::string::npos);
  CHECK_FALSE(fs::exists(place.task.run));
}

TEST_CASE("train: damaged validation data does not cost the steps before it") {
  Workplace place(test::tiny_xl());
  place.task.config.checkpoint_interval = 1000;
  const fs::path shard = place.scratch / "valid" / "shard-00000.zst";
  std::string bytes = test::slurp(shard);
  for (std::size_t i = 20; i < 28; ++i) bytes[i] = static_cast<char>(~bytes[i]);
  test::spill(shard, bytes);
  CHECK_FALSE(place.refusal().empty());
  CHECK(read_state(place.task.run / "last").step == 7);
}

TEST_CASE("train: a budget that is spent at once leaves a checkpoint") {
  Workplace place(test::tiny_xl());
  place.task.config.minutes = 1e-12;
  CHECK(place.train().step == 1);
  CHECK(read_state(place.task.run / "last").step == 1);
}

TEST_CASE("train: patience counts validations, whatever the interval is now") {
  Workplace place(test::tiny_ql());
  place.task.config.steps = 40;
  place.task.config.eval_interval = 10;
  place.task.config.learning_rate = 1e-30;  // so that no validation is better than the first
  place.task.config.patience = 3;
  place.task.stop_at = 25;
  CHECK(place.train().step == 25);  // one validation was not better
  place.task.start = Start::kResume;
  place.task.stop_at = 0;
  place.task.config.eval_interval = 2;
  CHECK(place.train().step == 28);  // those after 26 and 28 are the second and third
}

TEST_CASE("train: two trainings cannot share a folder") {
  Workplace place(test::tiny_xl());
  const RunFolder held(place.task.run, Start::kNew);
  CHECK(place.refusal().find("another training") != std::string::npos);
  // The second training must not read a checkpoint that the first one is writing.
  place.task.start = Start::kResume;
  fs::create_directory(place.task.run / "last");
  CHECK(place.refusal().find("another training") != std::string::npos);
}

TEST_CASE("train: weights of a Transformer-XL start a Transformer-QL of the same depth") {
  Workplace xl(test::tiny_xl()), ql(test::tiny_ql());
  xl.task.stop_at = 5;
  xl.train();
  ql.task.init = xl.task.run / "last";
  ql.task.config.learning_rate = 1e-30;  // leaves the weights as they came
  ql.task.config.steps = 1;
  ql.train();
  CHECK(ql.file("last/model.safetensors").size() == xl.file("last/model.safetensors").size());
  TrainedNetwork learner(test::tiny_ql(), ql.task.config), origin(test::tiny_xl(), xl.task.config);
  read_checkpoint(ql.task.run / "last", learner);
  read_checkpoint(xl.task.run / "last", origin);
  for (std::size_t i = 0; i < learner.model().parameters().size(); ++i) {
    CHECK(at::equal(learner.model().parameters()[i].tensor, origin.model().parameters()[i].tensor));
  }

  ql.task.start = Start::kForce;
  ql.task.network.d_inner = 48;
  CHECK(ql.refusal().find("CoreNet") != std::string::npos);
}

TEST_CASE("train: vocabularies have to agree") {
  Workplace place(test::tiny_xl());
  test::pack(place.scratch / "other", test::scrambled(90, 23), 23, "another hash");
  CHECK(place.refusal("data", "other").find("its vocabulary (23 entries") != std::string::npos);
  test::pack(place.scratch / "larger", test::scrambled(90, 23), 24);
  CHECK(place.refusal("data", "larger").find("24 entries") != std::string::npos);
  test::pack(place.scratch / "imported", test::scrambled(90, 23), 23, "");
  place.task.stop_at = 1;
  CHECK(place.refusal("data", "imported").empty());

  // The data have the same ids, but these stand for other tokens.
  place.task.start = Start::kResume;
  place.task.stop_at = 2;
  test::pack(place.scratch / "renamed", test::scrambled(200, 23), 23, "another hash",
             {10, 70, 75, 150});
  const std::string said = place.refusal("renamed", "other");
  CHECK(said.find((place.task.run / "last: its vocabulary (23 entries").string()) == 0);
  CHECK(read_state(place.task.run / "last").step == 1);
  CHECK(place.refusal("data", "imported").empty());

  place.task.start = Start::kNew;
  place.task.init = place.task.run / "last";
  place.task.run = place.scratch / "second";
  test::pack(place.scratch / "other-data", test::scrambled(200, 23), 23, "another hash");
  CHECK(place.refusal("other-data", "other").find("its vocabulary (23 entries") !=
        std::string::npos);
}

TEST_CASE("train: validation has its own lengths, and impossible ones are refused at once") {
  Workplace place(test::tiny_ql());
  place.task.config.eval_segment = 2;
  place.task.config.eval_memory = 10;
  place.task.config.steps = 1;
  place.train();
  const Json record = place.log().back();
  CHECK(record["segment"] == 2);
  CHECK(record["memory"] == 10);
  place.task.run = place.scratch / "odd";
  place.task.config.eval_segment = 3;
  CHECK_THROWS_AS(place.train(), ConfigError);
  CHECK_FALSE(fs::exists(place.task.run));
}

TEST_CASE("train: a budget of minutes completes the schedule") {
  Workplace place(test::tiny_xl());
  place.task.config.steps = 1'000'000'000;
  place.task.config.minutes = 0.5 / 60;
  place.task.config.log_interval = 1;
  place.task.config.min_lr_ratio = 0;
  const TrainingState state = place.train();
  CHECK(state.step > 0);
  CHECK(state.step < 1'000'000);
  CHECK(state.elapsed >= 0.5);
  CHECK(state.validation_step == state.step);
  place.task.start = Start::kResume;
  CHECK(place.train().step == state.step);
}

TEST_CASE("train: a budget that ends during a validation takes no further step") {
  Workplace place(test::tiny_xl());
  // Nearly all of the time is that of validations, one after each step.
  test::pack(place.scratch / "long", test::scrambled(20'000, 23), 23);
  place.task.config.steps = 1'000'000'000;
  place.task.config.minutes = 0.5 / 60;
  place.task.config.min_lr_ratio = 0;
  place.task.config.eval_interval = 1;
  place.task.config.log_interval = place.task.config.checkpoint_interval = 1'000'000'000;
  const TrainingState state = place.train("data", "long");
  CHECK(state.validation_step == state.step);
  CHECK(read_state(place.task.run / "last").step == state.step);
  std::int64_t validations = 0, trained = 0;
  for (const Json& record : place.log()) {
    if (record["kind"] == "validation") {
      ++validations;
      CHECK(record["step"] == validations);
    } else {
      ++trained;
      CHECK(record["step"] == state.step);
      CHECK(record["learning_rate"].get<double>() > 0);  // of the last step
    }
  }
  CHECK(validations == state.step);
  CHECK(trained == 1);
}

TEST_CASE("train: training that turns infinite in its first step saves nothing") {
  Workplace place(test::tiny_xl());
  place.task.config.checkpoint_interval = 1;
  place.task.config.learning_rate = 1e30;
  place.task.config.warmup_steps = 0;
  place.task.config.clip = 0;
  const std::string said = place.refusal();
  CHECK(said.find("step 2: ") == 0);
  CHECK(said.find("start again with a lower learning_rate") != std::string::npos);
  CHECK_FALSE(fs::exists(place.task.run / "last"));
}

}  // namespace ql::train
