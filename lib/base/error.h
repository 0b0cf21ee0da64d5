// Typed errors. The library throws them; it never prints, exits or aborts.
// tools/ turn them into one line on stderr and an exit code (see base/tool.h).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ql {

// The exit codes that all tools share (documented in transformer-ql(7)).
enum class ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  // 128 + n: ended by signal n.
};

// Something failed: an input, the file system, a length that does not fit. Exit code 1.
//
// The text has up to three parts, printed as "where: what; cure":
//   where  file, frame, line, key: the place the reader has to look at (may be empty)
//   what   what is wrong, with the expected and the found value
//   cure   what to do about it (may be empty)
class Error : public std::runtime_error {
 public:
  Error(const std::string& where, const std::string& what, const std::string& cure = "")
      : std::runtime_error(compose(where, what, cure)) {}

 private:
  static std::string compose(const std::string& where, const std::string& what,
                             const std::string& cure) {
    std::string text = where.empty() ? what : where + ": " + what;
    return cure.empty() ? text : text + "; " + cure;
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

// A configuration (model.json, preset, lengths) that cannot be built.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// Advises users when memory is short. The system's errors and bad_alloc say the same.
inline constexpr const char* kMemoryCure = "use smaller sizes or a machine with more memory";

// The operating system refused: carries errno's text.
class SystemError : public Error {
 public:
  // `action` completes "cannot ...": "open", "write", "rename to 'b'".
  SystemError(const std::string& where, const std::string& action, int error_number);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

// The reader of our standard output went away (EPIPE). Ends quietly with 128 + SIGPIPE.
class BrokenPipe : public std::runtime_error {
 public:
  BrokenPipe() : std::runtime_error("standard output was closed") {}
};

// Others have failed on our behalf and have said why. Ends with their exit code, without a word.
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

// Puts into words whatever was thrown. An Error says it itself. Of LibTorch's errors the first line
// says what, the rest is a stack. When memory ran out, what to do about it is added.
std::string failure_text(const std::exception& error);

}  // namespace ql
