#include "base/tool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/options_internal.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/provenance.h"
#include "base/signals.h"

namespace ql {

namespace {

// Questions that need no command. True when one was answered.
bool answer(const ToolTable& table, const std::vector<std::string>& arguments) {
  if (arguments.empty()) return false;
  const std::string& first = arguments.front();
  if (arguments.size() == 1 && first == "--man-options") {
    print(render_man_options(table));
  } else if (arguments.size() == 1 && first == "--bash-completion") {
    print(render_bash_completion(table));
  } else if (internal::has_named_commands(table) && (first == "--help" || first == "-h")) {
    print(render_help(table, nullptr));
  } else if (internal::has_named_commands(table) && (first == "--version" || first == "-V")) {
    print(fmt::format("{} (transformer-ql) {}\n", table.name, version()));
  } else {
    return false;
  }
  return true;
}

bool answer(const ToolTable& table, const Options& options) {
  if (options.flag("help")) {
    print(render_help(table, &options.command()));
  } else if (options.flag("version")) {
    print(fmt::format("{} (transformer-ql) {}\n", table.name, version()));
  } else {
    return false;
  }
  return true;
}

// A file opened later must not get the number of a closed standard stream and then receive what
// is meant for that stream. Opened the wrong way round, so that using it remains an error.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void set_up_words(const std::string& tool) {
  const char* terminal = std::getenv("TERM");
  ProgressStyle style;
  style.bar =
      ::isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
  set_progress_style(style);
  set_log_sink([tool](LogLevel level, const std::string& line) {
    const char* kind = level == LogLevel::kWarning ? "warning: " : "";
    print_above_progress(printable_lines(fmt::format("{}: {}{}", tool, kind, line)));
  });
}

// Makes sure that all printed with <cstdio> or <iostream> arrives, too.
void finish_standard_output() {
  errno = 0;
  std::cout.flush();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  if (!failed) return;
  if (errno != 0 && errno != EPIPE) throw SystemError("standard output", "write", errno);
  // An earlier write failed and its errno is gone; a pipe still tells whether anybody reads it.
  pollfd event = {STDOUT_FILENO, POLLOUT, 0};
  const bool nobody_reads = ::poll(&event, 1, 0) == 1 && (event.revents & POLLERR) != 0;
  if (errno == EPIPE || nobody_reads) throw BrokenPipe();
  throw Error("standard output", "not everything could be written", "is the disk full?");
}

int fail(const std::string& tool, const std::string& text, ExitCode code = ExitCode::kFailed) {
  const std::string words = printable_lines(fmt::format("{}: error: {}", tool, text));
  print_above_progress(words);
  return static_cast<int>(code);
}

// Calls `work` and turns whatever it throws into words and an exit code.
int reported(const std::string& tool, const std::function<void()>& work) {
  try {
    work();
    return static_cast<int>(ExitCode::kDone);
  } catch (const BrokenPipe&) {
    return 128 + SIGPIPE;
  } catch (const AlreadyReported& failure) {
    return failure.exit_code();
  } catch (const Interrupted& stop) {
    log_info("{}", stop.what());
    return 128 + stop.signal_number();
  } catch (const UsageError& error) {
    return fail(tool, error.what(), ExitCode::kUsage);
  } catch (const std::exception& error) {
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && system->code() == std::errc::broken_pipe) return 128 + SIGPIPE;
    return fail(tool, failure_text(error));
  } catch (...) {
    return fail(tool, "internal error: an unknown exception; please report it");
  }
}

}  // namespace

const char* version() { return QL_VERSION; }

void print(const std::string& text) {
  OutputStream out(false);
  out.write(text);
  out.close();
}

int run_tool(const std::function<ToolTable()>& make_table, int argc, char** argv,
             const std::function<void(const Options&)>& body) {
  std::signal(SIGPIPE, SIG_IGN);
  // A parent that ignores it has its children do so as well, and then the system forgets how
  // children end.
  std::signal(SIGCHLD, SIG_DFL);
  try {
    const ToolTable table = make_table();
    return reported(table.name, [&] {
      occupy_standard_descriptors();
      install_signal_handlers();
      set_up_words(table.name);
      const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
      set_provenance(table.name, arguments);
      if (answer(table, arguments)) return;
      const Options options = parse_options(table, arguments);
      if (answer(table, options)) return;
      if (options.flag("quiet")) set_log_level(LogLevel::kQuiet);
      if (options.flag("verbose")) set_log_level(LogLevel::kDebug);
      body(options);
      finish_standard_output();
    });
  } catch (const std::bad_alloc&) {
    // There is not even memory for the usual words.
    std::fputs(::program_invocation_short_name, stderr);
    std::fputs(": error: out of memory\n", stderr);
    return static_cast<int>(ExitCode::kFailed);
  }
}

}  // namespace ql
