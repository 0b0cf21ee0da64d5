// Defines the errors that the library throws. The library does not print them. run_tool() in
// base/tool.h turns an error into a message on stderr and an exit code.
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

// Something has failed: for example, an input is wrong, the file system has an error, or a length
// does not fit a network. The exit code is 1.
//
// The text has up to three parts, printed as "where: what; remedy":
//   where   the place that the user has to look at: a file, frame, line or key (may be empty)
//   what    what is wrong, with the expected and the found value
//   remedy  what to do about it (may be empty)
class Error : public std::runtime_error {
 public:
  Error(const std::string& where, const std::string& what, const std::string& remedy = "")
      : std::runtime_error(compose(where, what, remedy)) {}

 private:
  // `where` may be a file's name with line feeds, with which it would look like another message.
  // They become '?'.
  static std::string compose(const std::string& where, const std::string& what,
                             const std::string& remedy);
};

// The command line is wrong. The exit code is 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A file's content contradicts the expected format: the file is damaged, cut off, or of another
// format.
class FormatError : public Error {
 public:
  using Error::Error;
};

// The file is not damaged, but has a version of its format that only another release of this
// project can read.
class UnknownVersion : public FormatError {
 public:
  using FormatError::FormatError;
};

// A configuration (model.json, preset, lengths) contradicts itself, cannot be built, or does not
// fit other values, such as tensors.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// Advises users when memory is short. SystemError and failure_text() both use this text.
inline constexpr const char* kMemoryRemedy =
    "use smaller sizes, fewer threads or a machine with more memory";

// The operating system refused a call. The text has errno's description.
class SystemError : public Error {
 public:
  // `action` completes "cannot ...": "open", "write", "rename to 'b'".
  SystemError(const std::string& where, const std::string& action, int error_number);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

// The reader of our standard output has closed the pipe (EPIPE). The tool ends with 128 + SIGPIPE,
// without a message.
class BrokenPipe : public std::runtime_error {
 public:
  BrokenPipe() : std::runtime_error("standard output was closed") {}
};

// A child process has failed and has reported why. The tool then ends with the child's exit code,
// without a message.
class AlreadyReported : public std::runtime_error {
 public:
  explicit AlreadyReported(int exit_code)
      : std::runtime_error(fmt::format("ended with exit code {}", exit_code)),
        exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// A signal has asked us to stop, and we stop in good order. The exit code is 128 + the signal's
// number.
class Interrupted : public std::runtime_error {
 public:
  // The text is "stopped by SIGTERM" and then `place`, such as "after step 7: RUN/last".
  explicit Interrupted(int signal_number, const std::string& place = "");
  int signal_number() const { return signal_number_; }

 private:
  int signal_number_;
};

// Returns a message for any exception. Error and std::system_error keep their text, and
// std::logic_error is reported as an internal error. Other texts are cut after their first line,
// because LibTorch's errors have a stack trace there. When memory has run out, the message says
// what to do.
std::string failure_text(const std::exception& error);

// Collects the conflicts in a configuration, so that one message reports all of them and a user can
// fix them together.
class Conflicts {
 public:
  // The first three arguments are the parts of an Error. `setting` is a KEY=VALUE that resolves the
  // conflict, or empty. A conflict that is added twice counts once, because two checks may share a
  // rule.
  void add(const std::string& where, const std::string& what, const std::string& remedy = "",
           const std::string& setting = "");
  std::size_t size() const { return all_.size(); }
  // Throws ConfigError if there are conflicts. If there are several, the text has a line for each.
  // A remedy names the `setting` of its conflict after `option`: "give --set KEY=VALUE". If
  // `option` is empty, no setting is named, because the user has no option to give it with.
  void raise(const std::string& option = "") const;

 private:
  struct Conflict {
    std::string where, what, remedy, setting;
  };
  std::vector<Conflict> all_;
};

}  // namespace ql
