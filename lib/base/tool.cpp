// Makes the options that several tools have, runs a command, and reports its errors.

#include "base/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>

#include "base/data_input.h"
#include "base/log.h"
#include "base/process.h"
#include "base/provenance.h"
#include "base/resources.h"
#include "base/stream.h"

namespace ql {

// A list of a million long names fits into this many bytes. A larger file is probably a text that
// was given by mistake, and is not read to its end.
constexpr std::int64_t kLargestList = std::int64_t{256} << 20;

// Throws Error unless the file `name` exists. `where` is its place in the list of --files-from.
static void check_name(const std::string& name, const std::string& where) {
  struct stat status = {};
  if (::stat(name.c_str(), &status) == 0) return;
  const int reason = errno;
  constexpr std::size_t kMostShown = 200;
  const std::string shown = name.size() <= kMostShown ? name : name.substr(0, kMostShown) + "...";
  if (reason != ENOENT && reason != ENOTDIR && reason != ENAMETOOLONG) {
    throw SystemError(where, "open '" + shown + "'", reason);
  }
  throw Error(
      where, fmt::format("'{}' does not exist", shown),
      "write one name per line, or end each with NUL; names are relative to the current folder");
}

Option threads_option(const std::string& remark) {
  return make_integer(
      "threads", "Threads; 0 is one for each physical core that this process may use. " + remark,
      "0", 0, 1024);
}

int threads_of(const Options& options) {
  const auto threads = static_cast<int>(options.integer("threads"));
  return threads > 0 ? threads : usable_cores();
}

Option output_file_option(const std::string& remark) {
  return with_letter(
      'o',
      make_option("output-file", OptionType::kFile, "FILE",
                  "The file to write; - is standard output. The file gets its name only when "
                  "it is complete; until then an older file of that name stays. A file that is "
                  "read is not replaced." +
                      remark,
                  "-"));
}

Option files_from_option() {
  return make_option("files-from", OptionType::kFile, "LIST",
                     "Read the names from this file instead of the command line; - is standard "
                     "input. The file has one name per line or, if it contains NUL characters, a "
                     "name before each NUL (find -print0).");
}

static void refuse_second_standard_input(const std::vector<std::string>& names) {
  if (std::count(names.begin(), names.end(), "-") > 1) {
    throw UsageError("-", "standard input can be read only once", "name it once");
  }
}

void refuse_to_replace(const std::string& output, const std::vector<std::string>& inputs,
                       const std::string& option) {
  struct stat replaced = {}, standard_input = {};
  if (output == "-" || ::stat(output.c_str(), &replaced) != 0 || !S_ISREG(replaced.st_mode)) return;
  std::error_code absent;
  const std::filesystem::path path = std::filesystem::canonical(output, absent);
  for (const std::string& input : inputs) {
    // A hard link of an input keeps the input's text.
    const bool is_same = input == "-" ? ::fstat(STDIN_FILENO, &standard_input) == 0 &&
                                            standard_input.st_dev == replaced.st_dev &&
                                            standard_input.st_ino == replaced.st_ino
                                      : std::filesystem::canonical(input, absent) == path;
    if (is_same) {
      throw UsageError(option, printable(output) + " is read, and would be replaced",
                       "give another name");
    }
  }
}

std::vector<std::string> input_names(const Options& options) {
  if (!options.has("files-from")) {
    refuse_second_standard_input(options.positional());
    return options.positional();
  }
  if (!options.positional().empty()) {
    throw UsageError(
        "--files-from", "this option does not go with names on the command line",
        fmt::format("put all names, such as '{}', into the list", options.positional().front()));
  }
  const std::string path = options.text("files-from");
  const std::string list = path == "-" ? "standard input" : path;
  std::string text = read_content(path, Content::kNames, kLargestList);
  if (begins_with_mark(text)) text.erase(0, kByteOrderMark.size());
  const bool has_nul = text.find('\0') != std::string::npos;
  std::vector<std::string> names;
  std::int64_t number = 0;
  for (std::string& name : split(text, has_nul ? '\0' : '\n')) {
    ++number;
    if (!has_nul && !name.empty() && name.back() == '\r') name.pop_back();
    if (name.empty()) continue;
    const std::string where = fmt::format("{}: {} {}", list, has_nul ? "name" : "line", number);
    if (name != "-") {
      check_name(name, where);
    } else if (path == "-") {
      throw Error(where, "'-' stands for standard input, but the list itself comes from there",
                  "write the list to a file");
    }
    names.push_back(std::move(name));
  }
  if (names.empty()) {
    throw Error(list, "the list has no names", "check the command that made it");
  }
  refuse_second_standard_input(names);
  return names;
}

Option columns_option(std::function<std::vector<std::string>()> names) {
  return offering(
      std::move(names),
      make_option(
          "columns", OptionType::kText, "NAME,...|all",
          "The columns of the table, in this order. Default: all columns, separated by tabs; on a "
          "terminal, where the table is aligned, those that fit its width."));
}

Option raw_option() {
  return make_flag("raw",
                   "Read every FILE as it is. Without this option, gzip and zstd files are "
                   "decompressed; archives, documents, images, web pages, text in UTF-16 and other "
                   "files of a wrong kind are refused. The first bytes of a file show its kind.");
}

Content content_of(const Options& options, Content expected) {
  return options.flag("raw") ? Content::kAnything : expected;
}

TableText table_of(const Options& options, std::vector<std::string> first) {
  const std::string columns = options.has("columns") ? options.text("columns") : "";
  if (!columns.empty() && options.text("format") != "tsv") {
    throw UsageError("--columns", "this option is for tables only",
                     "give --format tsv, or leave --columns out");
  }
  return {columns, terminal_width(STDOUT_FILENO), std::move(first)};
}

std::vector<Option> machine_options(const std::string& sharing, const Option& precision) {
  return {
      threads_option(
          "With several processes N is for each, and 0 divides the cores of a machine among them."),
      // The largest value, converted to nanoseconds, fits into 64 bits.
      make_integer("timeout",
                   "If one of several processes does not answer, the others end after N seconds. "
                   "Several processes, started by torchrun, mpirun or srun, " +
                       sharing + ".",
                   "600", 1, INT32_MAX),
      make_option("device", OptionType::kText, "cpu|cuda|cuda:N",
                  "Device that computes: cpu, cuda (the first GPU, or one GPU for each of several "
                  "processes) or cuda:N.",
                  "cpu"),
      precision};
}

Json configuration_of(const Options& options) {
  Json json = options.resolved();
  json.erase("threads");
  json.erase("output-file");
  return json;
}

Json configuration_of(const Options& options, const std::vector<std::string>& names) {
  Json json = configuration_of(options);
  if (options.has("files-from")) json["files"] = shortened_words(names);
  return json;
}

// Prints the help of the tool, or of a command that is not null, or the version, if that is asked.
// Returns true when it has printed an answer, as the next function does.
static bool answer(const ToolTable& table, const Command* command, bool help, bool asks_version) {
  if (help) {
    print(render_help(table, command));
  } else if (asks_version) {
    print(fmt::format("{} (transformer-ql) {}\n", table.name, version()));
  }
  return help || asks_version;
}

// Answers --help and the other options that need no command.
static bool answer(const ToolTable& table, const std::vector<std::string>& arguments) {
  if (arguments.empty()) return false;
  const std::string& first = arguments.front();
  const bool alone = arguments.size() == 1;
  if (alone && first == "--man-options") {
    print(render_man_options(table));
  } else if (alone && first == "--bash-completion") {
    print(render_bash_completion(table));
  } else {
    return internal::has_named_commands(table) &&
           answer(table, nullptr, first == "--help" || first == "-h",
                  first == "--version" || first == "-V");
  }
  return true;
}

// A file opened later must not get the number of a closed standard stream and then receive that
// stream's data. /dev/null takes this number. It is opened in the wrong direction, so that using
// the stream remains an error.
static void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

static void set_up_words(const std::string& tool) {
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

// Throws unless everything printed with <cstdio> or <iostream> arrives.
static void finish_standard_output() {
  errno = 0;
  std::cout.flush();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  if (!failed) return;
  if (errno != 0 && errno != EPIPE) throw SystemError("standard output", "write", errno);
  // If errno is 0, an earlier write failed. A pipe still shows whether anybody reads it.
  pollfd event = {STDOUT_FILENO, POLLOUT, 0};
  const bool nobody_reads = ::poll(&event, 1, 0) == 1 && (event.revents & POLLERR) != 0;
  if (errno == EPIPE || nobody_reads) throw BrokenPipe();
  throw Error("standard output", "not everything could be written", "is the disk full?");
}

static std::atomic<int> reported_code{0};  // 0: no error has been reported

static int fail(const std::string& tool, const std::string& text,
                ExitCode code = ExitCode::kFailed) {
  const std::string words = printable_lines(fmt::format("{}: error: {}", tool, text));
  print_above_progress(words);
  return reported_code = static_cast<int>(code);
}

// Reports an error without allocating memory, and without the lock of the progress line.
static int fail_plainly(const char* text, const char* remedy) {
  for (const char* part : {static_cast<const char*>(::program_invocation_short_name),
                           ": error: ", text, remedy, "\n"}) {
    std::fputs(part, stderr);
  }
  return static_cast<int>(ExitCode::kFailed);
}

static int fail_without_memory() { return fail_plainly("out of memory; ", kMemoryRemedy); }

// An exception that leaves a destructor, a noexcept function or a thread never reaches reported().
// Most often memory has run out there: this ends the process with a message in place of SIGABRT.
// Temporary files stay, as after SIGKILL.
[[noreturn]] static void report_and_exit() {
  // Only the first of several threads reports.
  static std::atomic_flag entered = ATOMIC_FLAG_INIT;
  while (entered.test_and_set()) ::pause();
  const std::exception_ptr exception = std::current_exception();
  if (!exception) std::abort();
  if (reported_code != 0) ::_exit(reported_code);
  int code = static_cast<int>(ExitCode::kFailed);
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    code = fail_without_memory();
  } catch (const std::exception& error) {
    try {
      code = fail_plainly(printable_lines(failure_text(error)).c_str(), "");
    } catch (...) {
      code = fail_without_memory();
    }
  } catch (...) {
    std::abort();
  }
  ::_exit(code);
}

// Calls `work` and turns every exception into an exit code, and most exceptions also into a
// message.
static int reported(const std::string& tool, const std::function<void()>& work) {
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

void print(const std::string& text) {
  OutputStream out("-", false);
  out.write(text);
  out.close();
}

// Many systems keep the soft limit of open files at 1,024, for programs that use select(). Data of
// many shards and jobs of many processes need more.
static void raise_limit_of_open_files() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int run_tool(const std::function<ToolTable()>& make_table, int argc, char** argv,
             const std::function<void(const Options&)>& body) {
  std::set_terminate(report_and_exit);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of ulimit -f then fails with EFBIG
  // If our parent process ignores SIGCHLD, this process inherits that, and the system would forget
  // how our children end.
  std::signal(SIGCHLD, SIG_DFL);
  raise_limit_of_open_files();
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
      if (answer(table, &options.command(), options.flag("help"), options.flag("version"))) return;
      if (options.flag("quiet")) set_log_level(LogLevel::kQuiet);
      if (options.flag("verbose")) set_log_level(LogLevel::kDebug);
      body(options);
      finish_standard_output();
    });
  } catch (const std::bad_alloc&) {
    // There is not even memory for the usual message.
    return fail_without_memory();
  }
}

}  // namespace ql
