// Tests run_tool: exit codes, messages and standard output.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>
#include <thread>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/provenance.h"
#include "base/tool.h"
#include "unit/sample_table.h"
#include "unit/scratch.h"

namespace ql {

using test::Ending;
using test::in_child;

namespace {

using Body = std::function<void(const Options&)>;

Ending run(
    std::vector<std::string> arguments, const Body& body = [](const Options&) {},
    const std::string& output = "", const ToolTable& table = test::plain_table()) {
  arguments.insert(arguments.begin(), "/usr/bin/program");
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int argc = static_cast<int>(arguments.size());
  return in_child([&] { return run_tool([&] { return table; }, argc, argv.data(), body); }, output);
}

template <typename Exception>
Ending run_throwing(const Exception& exception) {
  return run({"a"}, [&](const Options&) { throw exception; });
}

// The compiler warns of a throw expression in a destructor or a noexcept function, but not of this.
void run_out_of_memory() { throw std::bad_alloc(); }

}  // namespace

TEST_CASE("run_tool: a run that succeeds") {
  const Ending ending = run({"a", "-l", "7"}, [](const Options& options) {
    fmt::print("level {}\n", options.integer("level"));
    std::cout << provenance({})["tool"].get<std::string>() << "\n";
  });
  CHECK(ending.exit_code == 0);
  CHECK(ending.out == "level 7\nqlone\n");
  CHECK(ending.err.empty());
}

TEST_CASE("run_tool: errors become one line and an exit code") {
  struct Case {
    Ending ending;
    int exit_code;
    const char* err;
  };
  const Case cases[] = {
      {run_throwing(Error("f", "broken", "fix it")), 1, "qlone: error: f: broken; fix it\n"},
      {run_throwing(UsageError("", "bad use")), 2, "qlone: error: bad use\n"},
      {run_throwing(FormatError("f", "cut off")), 1, "qlone: error: f: cut off\n"},
      // These are texts of LibTorch 1.13 and 2.6.
      {run_throwing(std::runtime_error(
           "[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you "
           "tried to allocate 3221225472 bytes. Error code 12 (Cannot allocate memory)\nframe #0: "
           "f")),
       1,
       "qlone: error: out of memory: an allocation of 3.0 GiB failed; use smaller sizes, fewer "
       "threads or a machine with more memory\n"},
      {run_throwing(std::runtime_error("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has "
                                       "a total capacity of 39.59 GiB of which 1.19 MiB is free.")),
       1,
       "qlone: error: out of GPU memory: an allocation of 20.00 MiB failed; use smaller sizes, "
       "fewer "
       "threads or a machine with more memory\n"},
      {run_throwing(std::runtime_error("can't allocate memory\nframe #0: f")), 1,
       "qlone: error: out of memory; use smaller sizes, fewer threads or a machine with more "
       "memory\n"},
      {run_throwing(SystemError("f", "open", ENOENT)), 1,
       "qlone: error: f: cannot open: no such file or directory\n"},
      {run_throwing(SystemError("f", "write", ENOSPC)), 1,
       "qlone: error: f: cannot write: no space left on device; free some space or write to "
       "another "
       "file system\n"},
      {run_throwing(SystemError("f", "list", ENOMEM)), 1,
       "qlone: error: f: cannot list: cannot allocate memory; use smaller sizes, fewer threads or "
       "a machine with more memory\n"},
      {run_throwing(std::filesystem::filesystem_error(
           "cannot make canonical path", std::make_error_code(std::errc::not_enough_memory))),
       1,
       "qlone: error: out of memory; use smaller sizes, fewer threads or a machine with more "
       "memory\n"},
      {run_throwing(SystemError("f\nqlone: error: g", "open", ENOENT)), 1,
       "qlone: error: f?qlone: error: g: cannot open: no such file or directory\n"},
      {run_throwing(SystemError("f", "read", EIO)), 1,
       "qlone: error: f: cannot read: input/output error\n"},
      {run_throwing(std::runtime_error("oops")), 1, "qlone: error: oops\n"},
      {run_throwing(std::logic_error("oops")), 1,
       "qlone: error: internal error: oops; please report it\n"},
      {run_throwing(std::bad_alloc()), 1,
       "qlone: error: out of memory; use smaller sizes, fewer threads or a machine with more "
       "memory\n"},
      {run_throwing(Interrupted(SIGINT)), 130, "qlone: stopped by SIGINT\n"},
      {run_throwing(Interrupted(SIGTERM)), 143, "qlone: stopped by SIGTERM\n"},
      {run_throwing(BrokenPipe()), 141, ""},
      {run_throwing(std::system_error(EPIPE, std::generic_category())), 141, ""},
      {run_throwing(7), 1,
       "qlone: error: internal error: an unknown exception; please report it\n"},
      {run({"a", "--levle", "1"}), 2,
       "qlone: error: unknown option --levle; did you mean --level? (see 'qlone --help')\n"},
      {run({}), 2,
       "qlone: error: expected INPUT [OUTPUT], found 0 arguments; see 'qlone --help'\n"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.err);
    CHECK(one.ending.exit_code == one.exit_code);
    CHECK(one.ending.err == one.err);
    CHECK(one.ending.out.empty());
  }
}

TEST_CASE("run_tool: an exception that cannot reach it ends the process with one message") {
  struct ThrowsAtEnd {
    ~ThrowsAtEnd() { run_out_of_memory(); }
  };
  const auto in_thread = [](const auto& exception) {
    return [exception](const Options&) { std::thread([&] { throw exception; }).join(); };
  };
  const Body exhausted[] = {
      in_thread(std::bad_alloc()),
      [](const Options&) { []() noexcept { run_out_of_memory(); }(); },
      [](const Options&) { const ThrowsAtEnd ends; },
      [](const Options&) {
        const ThrowsAtEnd ends;
        throw Error("f", "broken");
      },
      [&](const Options&) {
        std::thread first(run_out_of_memory);
        std::thread second(run_out_of_memory);
        first.join();
        second.join();
      },
  };
  const std::string name = ::program_invocation_short_name;
  for (const Body& body : exhausted) {
    CAPTURE(&body - exhausted);
    const Ending ending = run({"a"}, body);
    CHECK(ending.exit_code == 1);
    CHECK(ending.err ==
          name +
              ": error: out of memory; use smaller sizes, fewer threads or a machine with more "
              "memory\n");
  }
  const Ending other = run({"a"}, in_thread(Error("f", "broken", "fix it")));
  CHECK(other.exit_code == 1);
  CHECK(other.err == name + ": error: f: broken; fix it\n");
}

TEST_CASE("run_tool: questions are answered without a run") {
  const Body never = [](const Options&) { throw std::runtime_error("ran"); };
  const std::string version_line = fmt::format("qlone (transformer-ql) {}\n", version());
  CHECK(run({"--version"}, never).out == version_line);
  CHECK(run({"-V"}, never).out == version_line);
  CHECK(run({"--help"}, never).out == render_help(test::plain_table(), nullptr));
  CHECK(run({"--man-options"}, never).out == render_man_options(test::plain_table()));
  CHECK(run({"--bash-completion"}, never).out == render_bash_completion(test::plain_table()));
  const ToolTable& table = test::sample_table();
  CHECK(run({"--help"}, never, "", table).out == render_help(table, nullptr));
  CHECK(run({"-h"}, never, "", table).out == render_help(table, nullptr));
  CHECK(run({"pack", "-h"}, never, "", table).out == render_help(table, table.commands.data()));
  const ToolTable& mixed = test::mixed_table();
  CHECK(run({"--help"}, never, "", mixed).out == render_help(mixed, nullptr));
  CHECK(run({"-l", "1", "-h"}, never, "", mixed).out == render_help(mixed, nullptr));
  CHECK(run({"plan", "-h"}, never, "", mixed).out == render_help(mixed, &mixed.commands[1]));
  CHECK(run({"--version"}, never, "", table).exit_code == 0);
  CHECK(run({"info", "--version"}, never, "", table).out ==
        fmt::format("qlbox (transformer-ql) {}\n", version()));
}

TEST_CASE("run_tool: a full disk at the end of standard output is an error") {
  const Body printing[] = {[](const Options&) { fmt::print("text\n"); },
                           [](const Options&) { std::cout << "text\n"; },
                           [](const Options&) { std::cout << "text" << std::endl; }};
  for (const Body& body : printing) {
    const Ending ending = run({"a"}, body, "/dev/full");
    CHECK(ending.exit_code == 1);
    CHECK(ending.err.find("qlone: error: standard output: ") == 0);
  }
  const Ending help = run(
      {"--help"}, [](const Options&) {}, "/dev/full");
  CHECK(help.exit_code == 1);
  CHECK(help.err.find("no space left") != std::string::npos);
}

TEST_CASE("run_tool: a closed pipe at the end of standard output ends quietly") {
  const Body printing[] = {[](const Options&) { fmt::print("text\n"); },
                           [](const Options&) { std::cout << "text\n"; },
                           [](const Options&) { std::cout << "text" << std::endl; },
                           [](const Options&) { fmt::print("{}\n", std::string(100000, 'x')); }};
  for (const Body& body : printing) {
    const Ending ending = run({"a"}, [&](const Options& options) {
      int ends[2];
      if (::pipe(ends) != 0) return;
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      body(options);
    });
    CHECK(ending.exit_code == 141);
    CHECK(ending.err.empty());
  }
}

TEST_CASE("run_tool: a closed stdout is an error, and no file takes its place") {
  const test::ScratchFolder scratch;
  const Ending ending = in_child([&] {
    ::close(STDOUT_FILENO);
    std::string program = "qlone", argument = "a";
    char* argv[] = {program.data(), argument.data(), nullptr};
    return run_tool(test::plain_table, 2, argv, [&](const Options&) {
      AtomicFile file(scratch / "f");
      fmt::print("words");
      std::fflush(stdout);
      file.commit();
    });
  });
  CHECK(ending.exit_code == 1);
  CHECK(ending.err.find("standard output") != std::string::npos);
  CHECK(test::slurp(scratch / "f").empty());
}

TEST_CASE("run_tool: --quiet and --verbose set the level of messages") {
  const Body talking = [](const Options&) {
    log_warning("careful {}", 1);
    log_info("note");
    log_debug("detail");
  };
  CHECK(run({"a"}, talking).err == "qlone: warning: careful 1\nqlone: note\n");
  CHECK(run({"a", "-q"}, talking).err.empty());
  CHECK(run({"a", "-v"}, talking).err == "qlone: warning: careful 1\nqlone: note\nqlone: detail\n");
  CHECK(run({"a", "-q"}, [](const Options&) { throw Interrupted(SIGINT); }).err.empty());
  CHECK(run({"a", "-q"}, [](const Options&) { throw Error("", "bad"); }).err ==
        "qlone: error: bad\n");
}

TEST_CASE("run_tool: no control character reaches the terminal") {
  CHECK(run({"a"}, [](const Options&) { log_warning("a\x1b[31m\r\x7f"); }).err ==
        "qlone: warning: a?[31m??\n");
  // U+009B begins escape sequences, too. U+00A0 and other letters do not.
  CHECK(run({"a"}, [](const Options&) {
          throw Error(
              "\xC2\x9B"
              "31m",
              "\xC2\xA0\xC3\x9B");
        }).err == "qlone: error: ?31m: \xC2\xA0\xC3\x9B\n");
  CHECK(run({"a"}, [](const Options&) { throw Error("", "two\n\tlines"); }).err ==
        "qlone: error: two\n\tlines\n");
}

TEST_CASE("log_warning: the library alone prints nothing") {
  const Ending ending = in_child([] {
    log_warning("nobody listens");
    return 0;
  });
  CHECK(ending.err.empty());
  CHECK(ending.out.empty());
}

TEST_CASE("run_tool: a stop signal reaches the body") {
  const Ending ending = run({"a"}, [](const Options&) {
    ::raise(SIGTERM);
    check_for_stop();
  });
  CHECK(ending.exit_code == 143);
}

TEST_CASE("provenance: has the command line, quoted for the shell") {
  const Ending ending = run(
      {"a b", "it's", "-l", "3", "--", "$x"},
      [](const Options&) {
        Json configuration;
        configuration["level"] = 3;
        fmt::print("{}", dump_json(provenance(configuration)));
      },
      "",
      [] {
        static ToolTable table = test::plain_table();
        table.commands[0].positional = "FILE...";
        return std::cref(table);
      }());
  const Json json = Json::parse(ending.out);
  CHECK(json["tool"] == "qlone");
  CHECK(json["version"] == version());
  CHECK(json["command"] == R"(qlone 'a b' 'it'\''s' -l 3 -- '$x')");
  CHECK(json["configuration"] == Json{{"level", 3}});
  CHECK(json.size() == 4);
}

TEST_CASE("provenance: valid UTF-8 for any command line") {
  const Ending ending =
      run({"\xff"}, [](const Options&) { fmt::print("{}", dump_json(provenance({}))); });
  CHECK(ending.exit_code == 0);
  CHECK(Json::parse(ending.out)["command"] == "qlone '\xef\xbf\xbd'");
}

}  // namespace ql
