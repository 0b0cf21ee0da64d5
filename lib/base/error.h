// Has the types of errors. The library throws them; it never prints, exits or aborts. base/tool.h
// turns them into one line on stderr and an exit code.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace ql {

// ExitCode has the exit codes that all tools share (documented in transformer-ql(7)).
enum class ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  // 128 + n: ended by signal n.
};

// Something failed: an input, the file system, a length that does not fit. Exit code 1.
//
// The text has up to three parts, printed as "where: what; remedy":
//   where   file, frame, line, key: the place the reader has to look at (may be empty)
//   what    what is wrong, with the expected and the found value
//   remedy  what to do about it (may be empty)
class Error : public std::runtime_error {
 public:
  Error(const std::string& where, const std::string& what, const std::string& remedy = "")
      : std::runtime_error(compose(where, what, remedy)) {}

 private:
  static std::string compose(const std::string& where, const std::string& what,
                             const std::string& remedy) {
    std::string text = where.empty() ? what : where + ": " + what;
    return remedy.empty() ? text : text + "; " + remedy;
  }
};

// The command line is wrong. Exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A file's content contradicts its format: damaged, cut off, or not such a file.
class FormatError : public Error {
 public:
  using Error::Error;
};

// The file may be good for another release: it is not damaged.
class UnknownVersion : public FormatError {
 public:
  using FormatError::FormatError;
};

// A configuration (model.json, preset, lengths) contradicts itself or cannot be built.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// Advises users when memory is short. The system's errors and bad_alloc say the same.
inline constexpr const char* kMemoryRemedy = "use smaller sizes or a machine with more memory";

// The operating system refused a call. The text has errno's description.
class SystemError : public Error {
 public:
  // `action` completes "cannot ...": "open", "write", "rename to 'b'".
  SystemError(const std::string& where, const std::string& action, int error_number);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

// The reader of our standard output has closed it (EPIPE). Ends quietly with 128 + SIGPIPE.
class BrokenPipe : public std::runtime_error {
 public:
  BrokenPipe() : std::runtime_error("standard output was closed") {}
};

// Another process has failed on our behalf and has reported why. Ends with its exit code, silently.
class AlreadyReported : public std::runtime_error {
 public:
  explicit AlreadyReported(int exit_code)
      : std::runtime_error(fmt::format("ended with exit code {}", exit_code)),
        exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// A signal asked us to stop and we did so in good order. Ends with 128 + signal.
class Interrupted : public std::runtime_error {
 public:
  // The text is "stopped by SIGTERM" and then `place`, such as "after step 7: RUN/last".
  explicit Interrupted(int signal_number, const std::string& place = "");
  int signal_number() const { return signal_number_; }

 private:
  int signal_number_;
};

// Returns a one-line text for any exception. An Error has its own. LibTorch's errors are cut after
// their first line, because a stack trace follows. When memory ran out, the text says what to do.
std::string failure_text(const std::exception& error);

// Collects the conflicts in a configuration, so that one message reports all of them and a user can
// fix them together.
class Conflicts {
 public:
  // The first three parts are those of Error. `setting` is a KEY=VALUE that resolves the conflict,
  // or empty. Adding the same conflict twice counts once, because a rule may be a part of two
  // checks.
  void add(const std::string& where, const std::string& what, const std::string& remedy = "",
           const std::string& setting = "");
  std::size_t size() const { return all_.size(); }
  // Throws ConfigError if there are conflicts. Several are named on a line each. `option`, such as
  // "--set", is printed before each KEY=VALUE; without it the KEY=VALUEs are left out, for a reader
  // who cannot give any.
  void raise(const std::string& option = "") const;

 private:
  struct Conflict {
    std::string where, what, remedy, setting;
  };
  std::vector<Conflict> all_;
};

}  // namespace ql
