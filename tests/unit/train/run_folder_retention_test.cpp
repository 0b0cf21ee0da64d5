// Tests which checkpoints RUN keeps, and how the files of a killed process are handled.

#include <doctest/doctest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "net/model_file.h"
#include "train/run_folder.h"
#include "unit/scratch.h"

namespace ql::train {
namespace {

using Steps = std::vector<std::int64_t>;

// Replaces a folder by another one with other files, as write_checkpoint() does.
void write(const fs::path& folder, std::int64_t step) {
  AtomicFolder atomic(folder);
  test::spill(atomic.temporary() / "model.json", "model " + std::to_string(step));
  net::write_state_file(atomic.temporary(), {{"step", step}}, {"model.json"});
  atomic.commit();
}

Steps train(const fs::path& run, const Steps& steps, const Retention& retention) {
  for (const std::int64_t step : steps) {
    const std::int64_t previous = step_of(run / "last").value_or(0);
    write(run / "last", step);
    retain(run, step, retention, previous);
  }
  return kept_steps(run);
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

nlink_t links(const fs::path& path) {
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_nlink;
}

}  // namespace

TEST_CASE("retain: the newest checkpoints stay, and every m-th") {
  const Steps all{500, 1000, 1500, 1700, 2000, 2500};
  const auto kept = [&](std::int64_t last, std::int64_t every) {
    const test::ScratchFolder run;
    const Steps steps = train(run.path(), all, {last, every});
    CHECK(entries(run.path()) == steps.size() + 1);
    CHECK(test::slurp(run / "last/model.json") == "model 2500");
    for (const std::int64_t step : steps) {
      CHECK(test::slurp(step_folder(run.path(), step) / "model.json") ==
            "model " + std::to_string(step));
    }
    return steps;
  };
  CHECK(kept(1, 0).empty());
  CHECK(kept(2, 0) == Steps{2000, 2500});
  CHECK(kept(4, 0) == Steps{1500, 1700, 2000, 2500});
  CHECK(kept(100, 0) == all);
  CHECK(kept(1, 1000) == Steps{1000, 2000});
  CHECK(kept(2, 1000) == Steps{1000, 2000, 2500});
  CHECK(kept(3, 1500) == Steps{1500, 1700, 2000, 2500});
}

TEST_CASE("retain: a kept checkpoint takes no space in addition to RUN/last, and outlives it") {
  const test::ScratchFolder run;
  train(run.path(), {100}, {2, 0});
  CHECK(step_folder(run.path(), 100) == run / "step-00000100");
  CHECK(links(run / "step-00000100/model.json") == 2);
  train(run.path(), {200}, {2, 0});
  CHECK(links(run / "step-00000100/model.json") == 1);
  // RUN/last is written again at the same step, after another validation. The newest one counts.
  write(run / "last", 200);
  test::spill(run / "last/more", "");
  retain(run.path(), 200, {2, 0}, 200);
  CHECK(fs::exists(run / "step-00000200/more"));
}

TEST_CASE("retain: removes what is no longer kept, except steps of an earlier attempt") {
  const test::ScratchFolder run;
  train(run.path(), {1, 2, 3, 4, 5}, {5, 0});
  CHECK(train(run.path(), {6}, {2, 0}) == Steps{5, 6});
  CHECK(train(run.path(), {7}, {1, 0}).empty());
  train(run.path(), {8, 9}, {2, 0});
  // Somebody has put the checkpoint of step 2 into the place of RUN/last, so step 3 comes again.
  CHECK(train(run.path(), {3, 4, 5}, {2, 0}) == Steps{4, 5, 8, 9});
}

// A stop by a signal leaves a checkpoint of a step that is not a multiple of checkpoint_interval.
// If it is damaged, a resume continues from the one before.
TEST_CASE("retain: removes the folders that an earlier attempt wrote between two checkpoints") {
  const test::ScratchFolder run;
  const auto resume_at = [&](std::int64_t step) { write(run / "last", step); };
  CHECK(train(run.path(), {30, 33}, {2, 0}) == Steps{30, 33});
  resume_at(30);
  CHECK(train(run.path(), {40}, {2, 0}) == Steps{30, 40});
  // A multiple of keep_every does not stay either.
  CHECK(train(run.path(), {45, 48}, {3, 15}) == Steps{30, 40, 45, 48});
  resume_at(40);
  CHECK(train(run.path(), {50}, {3, 15}) == Steps{30, 40, 50});
}

TEST_CASE("kept_steps: no other name is taken for a checkpoint") {
  const test::ScratchFolder run;
  for (const char* name : {"step-1", "step-00000001x", "step-0000000k", "step-", "step-000000001",
                           "step--0000001", "steps-00000001", ".step-00000001", "step-notes"}) {
    fs::create_directory(run / name);
  }
  CHECK(kept_steps(run.path()).empty());
  fs::create_directory(run / "step-00000001");
  fs::create_directory(run / "step-1234567890");
  CHECK(kept_steps(run.path()) == Steps{1, 1234567890});
  CHECK(kept_steps(run / "nowhere").empty());
}

TEST_CASE("newest_checkpoints: RUN/last comes first, then those of most steps") {
  const test::ScratchFolder run;
  const auto found = [&] {
    std::vector<std::string> names;
    for (const fs::path& checkpoint : newest_checkpoints(run.path())) {
      CHECK(checkpoint.parent_path() == run.path());
      names.push_back(checkpoint.filename());
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(found().empty());
  CHECK(newest_checkpoints(run / "nowhere").empty());
  write(run / "best", 30);
  write(run / "step-00000020", 20);
  CHECK(found() == Names{"best", "step-00000020"});
  write(run / "step-00000030", 30);
  CHECK(found() == Names{"step-00000030", "best", "step-00000020"});
  write(run / "last", 10);
  CHECK(found() == Names{"last", "step-00000030", "best", "step-00000020"});
  test::spill(run / "best/state.json", "{\"state\": {");
  CHECK(found() == Names{"last", "step-00000030", "step-00000020", "best"});
}

TEST_CASE("set_aside: keeps its files, whatever was set aside before") {
  const test::ScratchFolder run;
  for (const char* name : {"last.damaged", "last.damaged-2", "last.damaged-3"}) {
    CAPTURE(std::string(name));
    write(run / "last", 10);
    CHECK(set_aside(run / "last", ".damaged") == run / name);
    CHECK_FALSE(fs::exists(run / "last"));
    CHECK(test::slurp(run / name / "model.json") == "model 10");
  }
  CHECK(newest_checkpoints(run.path()).empty());
  CHECK_THROWS_AS(set_aside(run / "last", ".damaged"), SystemError);
}

TEST_CASE("RunFolder: restores a checkpoint whose replacement was interrupted by a kill") {
  const test::ScratchFolder run;
  for (const char* name : {"last", "best", "step-00000010"}) {
    write(run / name, 10);
    fs::rename(run / name, run / (std::string(".") + name + ".0a1b2c3d.4242.tmp.old"));
    write(run / name, 20);
    fs::rename(run / name, run / (std::string(".") + name + ".0a1b2c3d.4242.tmp"));
  }
  std::vector<fs::path> found = newest_checkpoints(run.path());
  std::sort(found.begin() + 1, found.end());
  CHECK(found == std::vector<fs::path>{run / ".last.0a1b2c3d.4242.tmp.old",
                                       run / ".best.0a1b2c3d.4242.tmp.old",
                                       run / ".step-00000010.0a1b2c3d.4242.tmp.old"});
  CHECK_THROWS(RunFolder(run.path(), Start::kNew));
  CHECK(RunFolder(run.path(), Start::kResume).has_checkpoint());
  CHECK(run.entries() == 4);  // with .lock
  // Who may write to the folder may lock it.
  fs::permissions(run.path(), fs::perms(0775));
  RunFolder(run.path(), Start::kResume);
  CHECK(fs::status(run / ".lock").permissions() == fs::perms(0664));
  for (const char* name : {"last", "best", "step-00000010"}) {
    CHECK(test::slurp(run / name / "model.json") == "model 10");
  }
  // If the next RUN/last is in place, the old one is removed.
  fs::copy(run / "last", run / ".last.0a1b2c3d.4242.tmp.old");
  write(run / "last", 20);
  CHECK(RunFolder(run.path(), Start::kResume).has_checkpoint());
  CHECK(run.entries() == 4);  // with .lock
  CHECK(test::slurp(run / "last/model.json") == "model 20");
}

TEST_CASE("RunFolder: only names of a training are removed or put back") {
  const test::ScratchFolder run;
  for (const char* name :
       {".step-notes", ".step-00000010", ".step-10.0a1b2c3d.4242.tmp", ".first.0a1b2c3d.4242.tmp",
        ".last.tmp", ".last.0a1b2c3d.x.tmp.old", ".last.4242.tmp.old", ".last.0a1b2c3d.4242.old",
        "last.0a1b2c3d.4242.tmp"}) {
    fs::create_directory(run / name);
  }
  RunFolder(run.path(), Start::kForce).clear();
  CHECK(run.entries() == 10);  // with .lock
}

TEST_CASE("RunFolder: a folder that was moved, removed or replaced is not its own any more") {
  const test::ScratchFolder scratch;
  const fs::path run = scratch / "run", away = scratch / "away";
  const RunFolder first(run, Start::kNew);
  first.require_in_place();
  fs::rename(run, away);
  CHECK_THROWS(first.require_in_place());
  const RunFolder second(run, Start::kNew);
  second.require_in_place();
  CHECK_THROWS(first.require_in_place());
  CHECK_THROWS(RunFolder(away, Start::kResume));  // the first one still has its lock
  fs::remove_all(run);
  CHECK_THROWS(second.require_in_place());
  fs::rename(away, run);
  first.require_in_place();
}

TEST_CASE("RunFolder: symbolic links of checkpoints are refused") {
  for (const char* name : {"last", "best"}) {
    const test::ScratchFolder scratch;
    const fs::path run = scratch / "run";
    write(scratch / "elsewhere", 10);
    fs::create_directory(run);
    fs::create_directory_symlink("../elsewhere", run / name);
    for (const Start start : {Start::kNew, Start::kResume}) CHECK_THROWS(RunFolder(run, start));
    RunFolder(run, Start::kForce).clear();
    CHECK_FALSE(fs::is_symlink(run / name));
    CHECK(test::slurp(scratch / "elsewhere/model.json") == "model 10");
  }
}

TEST_CASE("RunFolder: a checkpoint loses its name before its files") {
  const test::ScratchFolder run;
  for (const char* name : {"last", "best", "step-00000010"}) write(run / name, 10);
  const int events = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (events < 0) {
    MESSAGE("no inotify: not tested");
    return;
  }
  for (const char* name : {"last", "best", "step-00000010"}) {
    REQUIRE(::inotify_add_watch(events, (run / name).c_str(), IN_MOVE_SELF | IN_DELETE) >= 0);
  }
  RunFolder(run.path(), Start::kForce).clear();
  CHECK(run.entries() == 1);  // .lock
  std::set<int> renamed;
  int deleted = 0;
  alignas(inotify_event) char bytes[4096];
  for (ssize_t got; (got = ::read(events, bytes, sizeof bytes)) > 0;) {
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(bytes + at);
      if ((event->mask & IN_MOVE_SELF) != 0) renamed.insert(event->wd);
      if ((event->mask & IN_DELETE) != 0) {
        CHECK(renamed.count(event->wd) == 1);
        ++deleted;
      }
      at += static_cast<ssize_t>(sizeof *event + event->len);
    }
  }
  ::close(events);
  CHECK(deleted == 6);
}

TEST_CASE("RunFolder: clears kept checkpoints, and the remains of a killed training") {
  const test::ScratchFolder scratch;
  const fs::path run = scratch / "run";
  fs::create_directory(run);
  train(run, {10, 20}, {2, 0});
  fs::create_directories(run / ".step-00000030.0a1b2c3d.123.tmp/part");
  fs::create_directories(run / ".removed/part");
  fs::create_directories(run / "step-notes");
  CHECK_THROWS(RunFolder(run, Start::kNew));
  fs::remove_all(run / "last");
  CHECK_THROWS(RunFolder(run, Start::kNew));  // step-00000020 is a checkpoint too
  RunFolder folder(run, Start::kForce);
  CHECK(entries(run) == 4);  // with .lock
  folder.clear();
  CHECK(entries(run) == 2);
  CHECK_FALSE(folder.has_checkpoint());
}

}  // namespace ql::train
