// Tests child processes and filters.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/error.h"
#include "base/process.h"
#include "base/stream.h"
#include "unit/scratch.h"

namespace ql {

namespace {

std::string rest_of(InputFile& file) {
  std::string text;
  char block[1000];
  while (const std::size_t count = file.read(block, sizeof block)) text.append(block, count);
  return text;
}

// Runs a shell script as a filter and returns its output.
std::string filtered(const std::string& script, const std::string& input = "") {
  std::string output;
  run_filter("/bin/sh", {"-c", script}, input, [&](InputFile& file) { output = rest_of(file); });
  return output;
}

}  // namespace

TEST_CASE("run_filter: a filter gets its arguments and input, and its output is returned") {
  const std::string input = std::string(300'000, 'x') + "\nthe end\n";
  CHECK(filtered("cat", input) == input);
  CHECK(filtered("cat").empty());
  std::string output;
  run_filter("/bin/sh", {"-c", "printf '%s|' \"$@\"", "name", "a b", "*", ""}, "",
             [&](InputFile& file) { output = rest_of(file); });
  CHECK(output == "a b|*||");
}

TEST_CASE("run_filter: how a filter ends") {
  CHECK_THROWS_WITH_AS(filtered("echo x; exit 3"), "ended with exit code 3", AlreadyReported);
  CHECK_THROWS_WITH_AS(filtered("exec >&-; exit 4"), "ended with exit code 4", AlreadyReported);
  CHECK_THROWS_WITH_AS(filtered("kill -9 $$"),
                       doctest::Contains("sh: this program was ended by signal 9"), Error);
  // The filter's failure is the reason for the reader's error, so it is reported.
  const auto complain = [](InputFile& output) {
    rest_of(output);
    throw Error("the reader", "gave up");
  };
  CHECK_THROWS_AS(run_filter("/bin/sh", {"-c", "exit 2"}, "", complain), AlreadyReported);
  CHECK_THROWS_WITH_AS(run_filter("/bin/sh", {"-c", "exit 0"}, "", complain), "the reader: gave up",
                       Error);
}

TEST_CASE("run_filter: a filter that nobody reads any more ends") {
  const char* endless = "while :; do echo y; done";
  CHECK_THROWS_AS(run_filter("/bin/sh", {"-c", endless}, "", [](InputFile&) {}), AlreadyReported);
  CHECK_THROWS_WITH_AS(run_filter("/bin/sh", {"-c", endless}, "",
                                  [](InputFile&) { throw Error("the reader", "gave up"); }),
                       "the reader: gave up", Error);
}

TEST_CASE("run_filter: a stop reaches a filter once, and its remaining output is read") {
  // A process of its own is needed, because a stop cannot be undone.
  const pid_t process = ::fork();
  REQUIRE(process >= 0);
  if (process == 0) {
    install_signal_handlers();
    ::alarm(20);
    int code = 1;
    try {
      // The shell counts the signals that it gets.
      filtered(
          "n=0; trap 'n=$((n+1))' INT; kill -s INT $PPID; i=0; while [ $i -lt 8 ]; do sleep 0.2; "
          "i=$((i+1)); done; exit $((40 + n))");
    } catch (const AlreadyReported& reported) {
      code = reported.exit_code();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 41);
}

TEST_CASE("run_filter: a stop between two reads reaches a filter that always has output") {
  const pid_t process = ::fork();
  REQUIRE(process >= 0);
  if (process == 0) {
    install_signal_handlers();
    ::alarm(20);
    int code = 1;
    try {
      run_filter("/bin/sh", {"-c", "trap 'exit 41' INT; while :; do echo y; done"}, "",
                 [](InputFile& output) {
                   char block[10];
                   output.read(block, sizeof block);
                   ::raise(SIGINT);
                   rest_of(output);
                 });
    } catch (const AlreadyReported& reported) {
      code = reported.exit_code();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 41);
}

TEST_CASE("run_filter: SIGPIPE ends a filter as it ends any program") {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  CHECK_THROWS_WITH_AS(filtered("kill -s PIPE $$; echo alive"), "ended with exit code 141",
                       AlreadyReported);
  std::signal(SIGPIPE, before);
}

TEST_CASE("a program that is not there") {
  CHECK_THROWS_WITH_AS(run_filter("/nowhere/program", {}, "", [](InputFile&) {}),
                       "/nowhere/program: cannot start this program: no such file or directory",
                       SystemError);
}

TEST_CASE("run_filter: where SIGCHLD is ignored, the end of a filter is never guessed") {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  CHECK_THROWS_WITH_AS(filtered("exit 3"),
                       doctest::Contains("/bin/sh: cannot find out how this program ended"),
                       SystemError);
  std::signal(SIGCHLD, before);
}

TEST_CASE("run_filter: a stop ends a filter without a handler, its output open or closed") {
  for (const char* script : {"kill -s TERM $PPID; exec sleep 30",
                             "exec >&-; sleep 0.3; kill -s TERM $PPID; exec sleep 30"}) {
    CAPTURE(script);
    const auto ending = test::in_child([script] {
      install_signal_handlers();
      ::alarm(20);
      try {
        filtered(script);
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
