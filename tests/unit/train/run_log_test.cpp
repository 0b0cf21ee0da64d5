// Tests the log of a training and its event file: appending, cutting off at a resume, full disks.

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "base/error.h"
#include "base/event_file.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "unit/event_reader.h"
#include "unit/scratch.h"

namespace ql::train {
namespace {

// Returns the only event file of the folder: after its two opening records, "TAG STEP VALUE" each.
std::vector<std::string> events_in(const test::ScratchFolder& folder) {
  const std::vector<std::filesystem::path> files = event_files(folder.path());
  REQUIRE(files.size() == 1);
  const std::vector<test::ReadEvent> events = test::read_events(test::slurp(files[0]));
  REQUIRE(events.size() >= 2);
  std::vector<std::string> lines;
  for (std::size_t i = 2; i < events.size(); ++i) {
    for (const auto& [tag, value] : events[i].scalars) {
      lines.push_back(fmt::format("{} {} {}", tag, events[i].step, value));
    }
  }
  return lines;
}

}  // namespace

TEST_CASE("RunLog: records are appended as complete lines") {
  const test::ScratchFolder scratch;
  {
    RunLog log(scratch / "log.jsonl", 0, 0);
    log.append({{"kind", "train"}, {"step", 1}});
    log.append({{"kind", "validation"}, {"step", 1}});
    log.sync();
  }
  CHECK(test::slurp(scratch / "log.jsonl") ==
        "{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"validation\",\"step\":1}\n");
}

TEST_CASE("RunLog: a resume cuts off records that the checkpoint does not include") {
  const test::ScratchFolder scratch;
  const std::string older =
      "{\"kind\":\"train\",\"step\":10}\n"
      "{\"kind\":\"validation\",\"step\":10}\n"
      "{\"kind\":\"train\",\"step\":20}\n";
  const std::string newer =
      "{\"kind\":\"validation\",\"step\":20}\n"
      "{\"kind\":\"train\",\"step\":30}\n";
  test::spill(scratch / "log.jsonl", older + newer + "{\"kind\":\"tra");
  {
    // The validation after step 20 was not part of the checkpoint: it comes again.
    RunLog log(scratch / "log.jsonl", 20, 10);
    log.append({{"kind", "validation"}, {"step", 20}});
  }
  CHECK(test::slurp(scratch / "log.jsonl") == older + "{\"kind\":\"validation\",\"step\":20}\n");
  { RunLog log(scratch / "log.jsonl", 0, 0); }
  CHECK(test::slurp(scratch / "log.jsonl").empty());
}

TEST_CASE("RunLog: a record of steps that the checkpoint still has to log goes") {
  const test::ScratchFolder scratch;
  const std::string older = "{\"kind\":\"train\",\"step\":10}\n";
  test::spill(scratch / "log.jsonl", older + "{\"kind\":\"train\",\"step\":12}\n");
  { RunLog log(scratch / "log.jsonl", 12, 10, 0, 0, {}, 2); }
  CHECK(test::slurp(scratch / "log.jsonl") == older);
}

TEST_CASE("RunLog: a change of settings stays in the log if it led to a checkpoint") {
  const test::ScratchFolder scratch;
  const auto record = [](int step, int steps) {
    return fmt::format(R"({{"kind":"resume","step":{},"changed":{{"steps":{{"after":{}}}}}}})",
                       step, steps) +
           "\n";
  };
  test::spill(scratch / "log.jsonl",
              record(10, 30) + record(20, 35) + record(20, 40) + record(20, 50));
  { RunLog log(scratch / "log.jsonl", 20, 20, 0, 0, {{"batch", 8}, {"steps", 40}}); }
  CHECK(test::slurp(scratch / "log.jsonl") == record(10, 30) + record(20, 35) + record(20, 40));
  { RunLog log(scratch / "log.jsonl", 20, 20); }
  CHECK(test::slurp(scratch / "log.jsonl") == record(10, 30));
}

TEST_CASE("RunLog: divergences that the checkpoint includes stay, whatever their step") {
  const test::ScratchFolder scratch;
  const std::string older =
      "{\"kind\":\"train\",\"step\":10}\n"
      "{\"kind\":\"divergence\",\"number\":1,\"step\":17}\n";
  test::spill(scratch / "log.jsonl", older +
                                         "{\"kind\":\"train\",\"step\":20}\n"
                                         "{\"kind\":\"divergence\",\"number\":2,\"step\":9}\n");
  { RunLog log(scratch / "log.jsonl", 10, 0, 0, 1); }
  CHECK(test::slurp(scratch / "log.jsonl") == older);
}

TEST_CASE("RunLog: a file that is not a log is not overwritten") {
  const test::ScratchFolder scratch;
  test::spill(scratch / "log.jsonl", "my notes\n");
  CHECK_THROWS_WITH_AS(RunLog(scratch / "log.jsonl", 3, 0),
                       doctest::Contains("remove this line, or rename the file"), FormatError);
  CHECK(test::slurp(scratch / "log.jsonl") == "my notes\n");
}

TEST_CASE("RunLog: a record without a step is named, of whatever kind it is") {
  const test::ScratchFolder scratch;
  for (const char* kind : {"train", "validation", "divergence"}) {
    const std::string text = fmt::format(
        "{{\"kind\":\"train\",\"step\":1}}\n{{\"kind\":\"{}\",\"number\":1,\"loss\":2}}\n", kind);
    test::spill(scratch / "log.jsonl", text);
    const std::string where = (scratch / "log.jsonl").string() + ": line 2: the key 'step'";
    CHECK_THROWS_WITH_AS(RunLog(scratch / "log.jsonl", 3, 3, 0, 1),
                         doctest::Contains(where.c_str()), FormatError);
    CHECK(test::slurp(scratch / "log.jsonl") == text);
  }
}

TEST_CASE("RunLog: a record of figures without their time is named") {
  const test::ScratchFolder scratch;
  const std::string text = "{\"kind\":\"train\",\"step\":1,\"loss\":2}\n";
  test::spill(scratch / "log.jsonl", text);
  const std::string where = (scratch / "log.jsonl").string() + ": line 1: the key 'elapsed'";
  CHECK_THROWS_WITH_AS(RunLog(scratch / "log.jsonl", 3, 3), doctest::Contains(where.c_str()),
                       FormatError);
  CHECK(test::slurp(scratch / "log.jsonl") == text);
}

TEST_CASE("RunLog: a full disk is an error and leaves complete lines") {
  const test::ScratchFolder scratch;
  const Json record = {{"kind", "train"}, {"step", 1}};
  const std::string line = record.dump() + "\n";
  const test::Ending ending = test::in_child([&] {
    RunLog log(scratch / "log.jsonl", 0, 0);
    log.append(record);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{line.size() + 5, line.size() + 5};  // five bytes of the next line fit
    ::setrlimit(RLIMIT_FSIZE, &most);
    try {
      log.append(record);
    } catch (const SystemError&) {
      return 42;
    }
    return 0;
  });
  CHECK(ending.exit_code == 42);
  CHECK(test::slurp(scratch / "log.jsonl") == line);
}

TEST_CASE("RunLog: the event file has the figures of the log") {
  const test::ScratchFolder scratch;
  const std::vector<std::string> kept = {"train/loss 10 2.5",
                                         "train/perplexity 10 12.5",
                                         "train/learning_rate 10 0.25",
                                         "train/gradient_norm 10 0.5",
                                         "train/tokens_per_second 10 1000",
                                         "validation/loss 10 2",
                                         "validation/perplexity 10 8",
                                         "train/loss 20 1.5"};
  std::vector<std::string> all = kept;
  {
    RunLog log(scratch / "log.jsonl", 0, 0);
    CHECK(events_in(scratch).empty());
    log.append({{"kind", "train"},
                {"step", 10},
                {"epoch", 0},
                {"loss", 2.5},
                {"perplexity", 12.5},
                {"learning_rate", 0.25},
                {"gradient_norm", 0.5},
                {"tokens_per_second", 1000.0},
                {"elapsed", 30.0}});
    log.append({{"kind", "validation"},
                {"step", 10},
                {"loss", 2.0},
                {"perplexity", 8.0},
                {"targets", 89},
                {"elapsed", 40.0}});
    log.append({{"kind", "train"}, {"step", 20}, {"loss", 1.5}, {"elapsed", 60.0}});
    log.append({{"kind", "note"}, {"step", 20}});
    log.append({{"kind", "validation"}, {"step", 20}, {"loss", std::nan("")}, {"elapsed", 70.0}});
    all.emplace_back("validation/loss 20 nan");
    CHECK(events_in(scratch) == all);
  }
  // A half-written record, as a killed process may leave it.
  const std::filesystem::path file = event_files(scratch.path()).at(0);
  test::spill(file, test::slurp(file) + test::slurp(file).substr(0, 30));
  CHECK(events_in(scratch) == all);

  RunLog log(scratch / "log.jsonl", 20, 10, 65.0);
  CHECK(events_in(scratch) == kept);
  log.append({{"kind", "validation"}, {"step", 20}, {"loss", 1.25}, {"elapsed", 75.0}});
  const auto events = test::read_events(test::slurp(event_files(scratch.path()).at(0)));
  CHECK(events.back().scalars.at(0) == std::pair<std::string, float>("validation/loss", 1.25F));
  // 45 seconds of training passed between the first record and this one, however long the pause.
  CHECK(events.back().wall_time - events[2].wall_time == doctest::Approx(45));
  CHECK(events[1].wall_time - events[2].wall_time == doctest::Approx(35));
}

TEST_CASE("RunLog: a new training names its event file after the one it replaces") {
  const test::ScratchFolder scratch;
  // The clock was set back, so that the time does not make the name.
  const std::filesystem::path before = scratch / "events.out.tfevents.9000000000000000.qltrain";
  test::spill(before, "");
  RunFolder folder(scratch.path(), Start::kForce);
  folder.clear();
  const RunLog log(folder.log(), 0, 0);
  const std::vector<std::filesystem::path> files = event_files(scratch.path());
  REQUIRE(files.size() == 1);
  CHECK(files[0] > before);
}

TEST_CASE("RunLog: a full disk leaves complete events") {
  const test::ScratchFolder scratch;
  const Json record = {
      {"kind", "train"}, {"step", 1}, {"loss", 2.0}, {"perplexity", 3.0}, {"elapsed", 4.0}};
  const test::Ending ending = test::in_child([&] {
    RunLog log(scratch / "log.jsonl", 0, 0);
    log.append(record);
    std::signal(SIGXFSZ, SIG_IGN);
    // The event file is the longer one: a part of its next record fits.
    const auto length = std::filesystem::file_size(event_files(scratch.path()).at(0));
    const rlimit most{length + 9, length + 9};
    ::setrlimit(RLIMIT_FSIZE, &most);
    try {
      log.append(record);
    } catch (const SystemError& error) {
      return std::string(error.what()).find("tfevents") != std::string::npos ? 42 : 1;
    }
    return 0;
  });
  CHECK(ending.exit_code == 42);
  CHECK(events_in(scratch) == std::vector<std::string>{"train/loss 1 2", "train/perplexity 1 3"});
}

}  // namespace ql::train
