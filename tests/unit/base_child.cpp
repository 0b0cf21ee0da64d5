#include "base/child.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "base/signals.h"

namespace ql {

TEST_CASE("a child gets its arguments as they are, and its output comes back") {
  const ChildResult result =
      run_child("/bin/sh", {"-c", "printf '%s|' \"$@\"", "name", "a b", "*", ""});
  CHECK(result.exit_code == 0);
  CHECK(result.output == "a b|*||");
}

TEST_CASE("more output than a pipe holds") {
  const ChildResult result = run_child(
      "/bin/sh",
      {"-c",
       "i=0; while [ $i -lt 5000 ]; do echo $i 012345678901234567890123456789; i=$((i+1)); done"});
  CHECK(result.exit_code == 0);
  CHECK(result.output.size() > 150000);
  CHECK(result.output.find("\n4999 0123") != std::string::npos);
}

TEST_CASE("how a child ends") {
  CHECK(run_child("/bin/sh", {"-c", "exit 3"}).exit_code == 3);
  CHECK(run_child("/bin/sh", {"-c", "kill -9 $$"}).exit_code == 128 + SIGKILL);
  CHECK(run_child("/bin/sh", {"-c", "exec >&-; exit 4"}).exit_code == 4);
}

TEST_CASE("a child's standard input is empty") { CHECK(run_child("/bin/cat", {}).output.empty()); }

TEST_CASE("SIGPIPE means to a child what it means to any program") {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  CHECK(run_child("/bin/sh", {"-c", "kill -s PIPE $$; echo alive"}).exit_code == 128 + SIGPIPE);
  std::signal(SIGPIPE, before);
}

TEST_CASE("a program that is not there") {
  CHECK_THROWS_WITH_AS(run_child("/nowhere/program", {}),
                       "/nowhere/program: cannot start it: no such file or directory", SystemError);
}

TEST_CASE("a stop ends the child, too, whether its output is open or closed") {
  for (const char* script : {"kill -s TERM $PPID; exec sleep 30",
                             "exec >&-; sleep 0.3; kill -s TERM $PPID; exec sleep 30"}) {
    CAPTURE(script);
    // In a process of its own: a stop that was asked for stays so.
    const pid_t process = ::fork();
    REQUIRE(process >= 0);
    if (process == 0) {
      install_signal_handlers();
      ::alarm(10);
      int code = 1;
      try {
        run_child("/bin/sh", {"-c", script});
      } catch (const Interrupted& stop) {
        code = stop.signal_number() == SIGTERM ? 0 : 2;
      }
      ::_exit(code);
    }
    int status = 0;
    REQUIRE(::waitpid(process, &status, 0) == process);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("the program's folder") {
  CHECK(std::filesystem::exists(program_folder() / "test_base"));
}

}  // namespace ql
