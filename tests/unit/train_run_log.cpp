#include "train/run_log.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

#include "base/error.h"
#include "scratch.h"

namespace ql::train {

TEST_CASE("records are appended as whole lines") {
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

TEST_CASE("a resume cuts off what the checkpoint does not know") {
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

TEST_CASE("a log that is none is not overwritten") {
  const test::ScratchFolder scratch;
  test::spill(scratch / "log.jsonl", "my notes\n");
  CHECK_THROWS_AS(RunLog(scratch / "log.jsonl", 3, 0), FormatError);
  CHECK(test::slurp(scratch / "log.jsonl") == "my notes\n");
}

TEST_CASE("a full disk is an error and leaves whole lines") {
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

}  // namespace ql::train
