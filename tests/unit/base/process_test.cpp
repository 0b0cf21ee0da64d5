// Tests child processes.

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/error.h"
#include "base/process.h"
#include "unit/scratch.h"

namespace ql {

namespace {

std::string output_of_script(const std::string& script) {
  return output_of("/bin/sh", {"-c", script});
}

}  // namespace

TEST_CASE("output_of: a program gets its arguments and an empty input") {
  CHECK(output_of("/bin/sh", {"-c", "printf '%s|' \"$@\"", "name", "a b", "*", ""}) == "a b|*||");
  const auto ending = test::in_child([] {
    const test::ScratchFolder scratch;
    test::spill(scratch / "input", "text");
    if (std::freopen((scratch / "input").c_str(), "r", stdin) == nullptr) return 1;
    return output_of_script("cat; echo the end") == "the end\n" ? 0 : 2;
  });
  CHECK(ending.exit_code == 0);
  CHECK(output_of_script("head -c 300000 /dev/zero | tr '\\0' x") == std::string(300'000, 'x'));
}

TEST_CASE("output_of: how a program ends") {
  CHECK_THROWS_WITH_AS(output_of_script("echo x; exit 3"), "ended with exit code 3",
                       AlreadyReported);
  CHECK_THROWS_WITH_AS(output_of_script("exec >&-; exit 4"), "ended with exit code 4",
                       AlreadyReported);
  CHECK_THROWS_WITH_AS(output_of_script("kill -9 $$"),
                       doctest::Contains("sh: this program was ended by signal 9"), Error);
}

TEST_CASE("output_of: a stop reaches a program once, and its remaining output is read") {
  // A process of its own is needed, because a stop cannot be undone.
  const auto ending = test::in_child([] {
    install_signal_handlers();
    ::alarm(20);
    try {
      // The shell counts the signals that it gets.
      output_of_script(
          "n=0; trap 'n=$((n+1))' INT; kill -s INT $PPID; i=0; while [ $i -lt 8 ]; do sleep 0.2; "
          "i=$((i+1)); done; head -c 300000 /dev/zero; exit $((40 + n))");
    } catch (const AlreadyReported& reported) {
      return reported.exit_code();
    }
    return 1;
  });
  CHECK(ending.exit_code == 41);
}

TEST_CASE("output_of: a stop reaches a program that always has output") {
  const auto ending = test::in_child([] {
    install_signal_handlers();
    ::alarm(20);
    try {
      output_of_script("trap 'exit 41' INT; kill -s INT $PPID; while :; do echo y; done");
    } catch (const AlreadyReported& reported) {
      return reported.exit_code();
    }
    return 1;
  });
  CHECK(ending.exit_code == 41);
}

TEST_CASE("output_of: SIGPIPE ends a program as it ends any other") {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  CHECK_THROWS_WITH_AS(output_of_script("kill -s PIPE $$; echo alive"), "ended with exit code 141",
                       AlreadyReported);
  std::signal(SIGPIPE, before);
}

TEST_CASE("a program that is not there") {
  CHECK_THROWS_WITH_AS(output_of("/nowhere/program", {}),
                       "/nowhere/program: cannot start this program: no such file or directory",
                       SystemError);
}

TEST_CASE("output_of: where SIGCHLD is ignored, the end of a program is never guessed") {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  CHECK_THROWS_WITH_AS(output_of_script("exit 3"),
                       doctest::Contains("/bin/sh: cannot find out how this program ended"),
                       SystemError);
  std::signal(SIGCHLD, before);
}

TEST_CASE("output_of: a stop ends a program without a handler, its output open or closed") {
  for (const char* script : {"kill -s TERM $PPID; exec sleep 30",
                             "exec >&-; sleep 0.3; kill -s TERM $PPID; exec sleep 30"}) {
    CAPTURE(script);
    const auto ending = test::in_child([script] {
      install_signal_handlers();
      ::alarm(20);
      try {
        output_of_script(script);
      } catch (const Interrupted& stop) {
        return stop.signal_number() == SIGTERM ? 0 : 2;
      }
      return 1;
    });
    CHECK(ending.exit_code == 0);
  }
}

TEST_CASE("exec_program: a stop that comes while the next program loads waits for its handlers") {
  const auto becomes = [](const char* script) {
    return test::in_child([script] {
      install_signal_handlers();
      std::string words[] = {"sh", "-c", script};
      char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
      exec_program("/bin/sh", arguments);
      return 1;
    });
  };
  // A program that never installs handlers shows that the signals are held back.
  for (const int signal_number : kStopSignals) {
    const std::string script = "kill -s " + std::to_string(signal_number) + " $$; exit 7";
    CHECK(becomes(script.c_str()).exit_code == 7);
  }
  const auto failed = test::in_child([] {
    install_signal_handlers();
    char* arguments[] = {nullptr};
    try {
      exec_program("/nowhere/program", arguments);
    } catch (const SystemError&) {
      ::raise(SIGTERM);
    }
    return stop_signal() == SIGTERM ? 0 : 1;
  });
  CHECK(failed.exit_code == 0);
  const auto handled = test::in_child([] {
    // The program after exec() inherits this.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    ::raise(SIGTERM);
    install_signal_handlers();
    return stop_signal() == SIGTERM ? 0 : 1;
  });
  CHECK(handled.exit_code == 0);
}

TEST_CASE("program_folder: the folder of the running program") {
  CHECK(std::filesystem::exists(program_folder() / "test_base"));
}

}  // namespace ql
