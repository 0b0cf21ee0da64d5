// Tests input and output: files, pipes, full disks and terminals.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/stream.h"
#include "unit/complaint.h"
#include "unit/scratch.h"

namespace ql {

using test::in_child;
using test::ScratchFolder;
using test::spill;

TEST_CASE("Descriptor: standard input that cannot be replaced is an error") {
  CHECK_THROWS_WITH_AS(Descriptor().become_standard_input("--items"),
                       "--items: cannot replace standard input: bad file descriptor", SystemError);
}

TEST_CASE("read_file: complete files") {
  const ScratchFolder scratch;
  for (const std::size_t size : {0, 1, 1048575, 1048576, 1048577, 3000000}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; i += 1000) text[i] = static_cast<char>(i / 1000);
    spill(scratch / "f", text);
    CHECK(read_file(scratch / "f") == text);
    CHECK(read_file(scratch / "f", static_cast<std::int64_t>(size)) == text);
    if (size > 0) {
      CHECK_THROWS_AS(read_file(scratch / "f", static_cast<std::int64_t>(size) - 1), Error);
    }
  }
  // The size of this file is not known before it is read.
  CHECK(read_file("/proc/self/status").find("Pid:") != std::string::npos);
  CHECK_THROWS_WITH_AS(read_file(scratch / "none"),
                       doctest::Contains("none: cannot open: no such file"), SystemError);
  CHECK_THROWS_AS(read_file(scratch.path()), SystemError);
  CHECK_THROWS_AS(read_file("/dev/zero", 1000), Error);
}

TEST_CASE("InputFile: a file that changes while it is read is noted at its end") {
  const ScratchFolder scratch;
  const std::string path = scratch / "f";
  // Returns the error, or the warning, of reading the file with this change after four bytes.
  const auto said_after = [&path](const std::function<void()>& change) {
    spill(path, "0123456789");
    // The time of a change must differ, however coarse the clock of the file system is.
    const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    ::utimensat(AT_FDCWD, path.c_str(), long_ago, 0);
    std::string said;
    set_log_sink([&said](LogLevel, const std::string& line) { said += line; });
    InputFile file(path);
    char bytes[4];
    CHECK(file.read(bytes, sizeof bytes) == sizeof bytes);
    change();
    const std::string refusal = test::complaint([&] {
      while (file.read(bytes, sizeof bytes) > 0) {
      }
      file.read(bytes, sizeof bytes);  // the end again, which warns no second time
    });
    set_log_sink(nullptr);
    return refusal.empty() ? said : refusal;
  };
  const std::string warning = path + ": another program wrote to this file while it was read";
  CHECK(said_after([] {}) == "");
  CHECK(said_after([&] { std::ofstream(path, std::ios::app) << "more"; }) == "");
  CHECK(said_after([&] { std::fstream(path, std::ios::in | std::ios::out) << "other"; }) ==
        warning);
  CHECK(said_after([&] { fs::resize_file(path, 6); }) ==
        path +
            ": the file became shorter while it was read: it had 10 bytes, and has 6 now; run "
            "the command again when no other program writes this file");
  CHECK(said_after([&] { fs::resize_file(path, 0); }).find("and has 0 now") != std::string::npos);
  // Another file of this name is another file.
  CHECK(said_after([&] { write_file_atomically(path, "new"); }) == "");
}

TEST_CASE("RandomAccessFile: regular files, and no others") {
  const ScratchFolder scratch;
  spill(scratch / "f", "abc");
  const RandomAccessFile file(scratch / "f");
  CHECK(file.size() == 3);
  char buffer[2];
  file.read(1, buffer, 2);
  CHECK(std::string(buffer, 2) == "bc");
  CHECK_THROWS_AS(file.read(2, buffer, 2), FormatError);
  spill(scratch / "empty", "");
  CHECK(RandomAccessFile(scratch / "empty").head().empty());
  CHECK_THROWS_AS(RandomAccessFile(scratch / "none"), SystemError);
  CHECK_THROWS_AS(RandomAccessFile(scratch.path()), FormatError);
  CHECK_THROWS_AS(RandomAccessFile("/dev/null"), FormatError);
}

TEST_CASE("InputFile: input in pieces") {
  const ScratchFolder scratch;
  spill(scratch / "f", "abcdefg");
  InputFile file(scratch / "f");
  CHECK(file.name() == (scratch / "f").string());
  char buffer[16];
  CHECK(read_fully(file, buffer, 3) == 3);
  CHECK(std::string(buffer, 3) == "abc");
  CHECK(read_fully(file, buffer, 16) == 4);
  CHECK(read_fully(file, buffer, 16) == 0);
  CHECK(file.read(buffer, 16) == 0);
  CHECK_THROWS_AS(InputFile{scratch.path().string()}, SystemError);
}

TEST_CASE("InputFile: standard input arrives in the pieces that the producer wrote") {
  const auto ending = in_child([] {
    int ends[2];
    if (::pipe(ends) != 0) return 98;
    ::dup2(ends[0], STDIN_FILENO);
    std::thread producer([&] {
      for (const char* piece : {"ab", "c", "defg"}) {
        if (::write(ends[1], piece, std::strlen(piece)) < 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      ::close(ends[1]);
    });
    InputFile file("-");
    char buffer[16];
    const std::size_t got = read_fully(file, buffer, 16);
    producer.join();
    return file.name() == "standard input" && std::string(buffer, got) == "abcdefg" ? 0 : 1;
  });
  CHECK(ending.exit_code == 0);
}

TEST_CASE("InputFile::has_more: whether more has come") {
  const auto ending = in_child([] {
    int ends[2];
    if (::pipe(ends) != 0) return 98;
    ::dup2(ends[0], STDIN_FILENO);
    const InputFile file("-");
    if (!file.is_pipe() || file.has_more()) return 1;
    if (::write(ends[1], "a", 1) != 1 || !file.has_more()) return 2;
    char byte = 0;
    if (InputFile("-").read(&byte, 1) != 1 || file.has_more()) return 3;
    ::close(ends[1]);
    return file.has_more() ? 0 : 4;
  });
  CHECK(ending.exit_code == 0);
  const ScratchFolder scratch;
  spill(scratch / "f", "");
  const InputFile file(scratch / "f");
  CHECK_FALSE(file.is_pipe());
  CHECK(file.has_more());
}

TEST_CASE(
    "InputFile::read_what_comes: data that a pipe has delivered is returned after a silence") {
  const auto ending = in_child([] {
    int ends[2];
    if (::pipe(ends) != 0) return 98;
    ::dup2(ends[0], STDIN_FILENO);
    InputFile file("-");
    char buffer[16];
    // The pipe stays open, so read_fully() would wait for ever.
    ::alarm(10);
    if (::write(ends[1], "abcde", 5) != 5) return 98;
    if (file.read_what_comes(buffer, 2) != 2 || std::string(buffer, 2) != "ab") return 1;
    if (file.read_what_comes(buffer, 16) != 3 || std::string(buffer, 3) != "cde") return 2;
    if (::write(ends[1], "f", 1) != 1) return 98;
    ::close(ends[1]);
    if (file.read_what_comes(buffer, 16) != 1 || buffer[0] != 'f') return 3;
    return file.read_what_comes(buffer, 16) == 0 ? 0 : 4;
  });
  CHECK(ending.exit_code == 0);
  const ScratchFolder scratch;
  spill(scratch / "f", "abc");
  InputFile file(scratch / "f");
  char buffer[16];
  CHECK(file.read_what_comes(buffer, 2) == 2);
  CHECK(file.read_what_comes(buffer, 16) == 1);
  CHECK(file.read_what_comes(buffer, 16) == 0);
}

TEST_CASE("InputFile::read_what_comes: a steady trickle is not awaited without end") {
  const auto ending = in_child([] {
    int ends[2];
    if (::pipe(ends) != 0) return 98;
    ::dup2(ends[0], STDIN_FILENO);
    constexpr std::size_t kBytes = 500;
    std::atomic<bool> seen = false;
    std::thread producer([&] {
      for (std::size_t i = 0; i < kBytes && !seen; ++i) {
        if (::write(ends[1], "x", 1) != 1) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      ::close(ends[1]);
    });
    char buffer[2 * kBytes];
    const std::size_t got = InputFile("-").read_what_comes(buffer, sizeof buffer);
    seen = true;
    producer.join();
    return got > 0 && got < kBytes ? 0 : 1;
  });
  CHECK(ending.exit_code == 0);
}

TEST_CASE("InputFile: a stop signal ends the wait for input") {
  const auto ending = in_child([] {
    int ends[2];
    if (::pipe(ends) != 0) return 98;
    ::dup2(ends[0], STDIN_FILENO);
    install_signal_handlers();
    // The signal goes to another thread, so that it interrupts no system call of this one.
    std::thread([] { ::raise(SIGTERM); }).join();
    try {
      char byte = 0;
      InputFile("-").read(&byte, 1);
    } catch (const Interrupted& stop) {
      return stop.signal_number() == SIGTERM ? 0 : 2;
    }
    return 1;
  });
  CHECK(ending.exit_code == 0);
}

TEST_CASE("OutputStream: output arrives complete and in order") {
  std::string expected;
  for (int i = 0; i < 300000; ++i) expected += std::to_string(i) + "\n";
  const auto ending = in_child([&] {
    OutputStream out("-", true);
    out.write(std::string_view(expected).substr(0, 10));
    out.write(std::string_view(expected).substr(10, 1500000));
    for (std::size_t at = 1500010; at < expected.size(); at += 999) {
      out.write(std::string_view(expected).substr(at, 999));
    }
    out.close();
    return 0;
  });
  CHECK(ending.exit_code == 0);
  CHECK(ending.out == expected);
}

TEST_CASE("OutputStream: flush() sends the buffer, the destructor the rest") {
  const auto ending = in_child([] {
    OutputStream out("-", false);
    out.write("now");
    out.flush();
    const bool there = ::lseek(STDOUT_FILENO, 0, SEEK_END) == 3;
    out.write(" later");
    return there && ::lseek(STDOUT_FILENO, 0, SEEK_END) == 3 ? 0 : 1;
  });
  CHECK(ending.exit_code == 0);
  CHECK(ending.out == "now later");
}

TEST_CASE("OutputStream: standard output leads to a full disk") {
  const auto ending = in_child(
      [] {
        OutputStream out("-", false);
        out.write("text");
        try {
          out.close();
        } catch (const SystemError& error) {
          return std::string(error.what()).find("no space left") != std::string::npos ? 0 : 2;
        }
        return 1;
      },
      "/dev/full");
  CHECK(ending.exit_code == 0);
}

TEST_CASE("OutputStream: standard output leads to a closed pipe") {
  const auto ending = in_child([] {
    ::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    if (::pipe(ends) != 0) return 98;
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    OutputStream out("-", false);
    out.write("text");
    try {
      out.flush();
    } catch (const BrokenPipe&) {
      return 0;
    }
    return 1;
  });
  CHECK(ending.exit_code == 0);
}

TEST_CASE("OutputStream: binary data and terminals") {
  const auto ending = in_child([] {
    const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return 77;
    ::dup2(::open(::ptsname(terminal), O_RDWR | O_NOCTTY), STDOUT_FILENO);
    const OutputStream text("-", false);
    try {
      const OutputStream binary("-", true);
    } catch (const UsageError&) {
      return 0;
    }
    return 1;
  });
  if (ending.exit_code == 77) return;
  CHECK(ending.exit_code == 0);
}

TEST_CASE("is_inside_path: paths found in files stay inside their folder") {
  for (const char* good : {"a", "a/b", "./a", "a..b", "..a", "a/.../b"}) {
    CAPTURE(good);
    CHECK(is_inside_path(good));
  }
  for (const char* bad : {"", "/", "/a", "..", "../a", "a/../b", "a/..", "a/../../b"}) {
    CAPTURE(bad);
    CHECK_FALSE(is_inside_path(bad));
  }
  CHECK_FALSE(is_inside_path(std::string("a\0b", 3)));
}

TEST_CASE("InputFile: a stop before a named pipe is opened ends the wait for its writer") {
  const ScratchFolder scratch;
  const fs::path pipe = scratch / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto ending = in_child([&] {
    ::alarm(10);
    install_signal_handlers();
    ::raise(SIGTERM);
    try {
      char letter = 0;
      InputFile(pipe.string()).read(&letter, 1);
    } catch (const Interrupted&) {
      return 0;
    }
    return 1;
  });
  CHECK(ending.exit_code == 0);
}

}  // namespace ql
