// Tests AtomicFile, AtomicFolder and their temporary names.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "unit/complaint.h"
#include "unit/scratch.h"

namespace ql {

using test::complaint;
using test::in_child;
using test::ScratchFolder;
using test::slurp;
using test::spill;

namespace {

// Returns the number of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

// Mounts a file system of 64 KiB that only this process sees. Returns false if that is not allowed.
bool mount_small_disk(const fs::path& folder) {
  const std::string user = "0 " + std::to_string(::getuid()) + " 1";
  const std::string group = "0 " + std::to_string(::getgid()) + " 1";
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    spill("/proc/self/uid_map", user);
    spill("/proc/self/setgroups", "deny");
    spill("/proc/self/gid_map", group);
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", folder.c_str(), "tmpfs", 0, "size=64k") == 0;
}

}  // namespace

TEST_CASE("AtomicFile: a committed file is there, alone, with ordinary permissions") {
  const ScratchFolder scratch;
  const mode_t mask = ::umask(022);
  {
    AtomicFile file(scratch / "a.txt");
    file.write("hello ");
    file.write("world");
    CHECK(file.size() == 11);
    CHECK_FALSE(fs::exists(scratch / "a.txt"));
    file.commit();
    CHECK_THROWS_AS(file.commit(), std::logic_error);
    CHECK_THROWS_AS(file.write("x"), std::logic_error);
  }
  ::umask(mask);
  CHECK(slurp(scratch / "a.txt") == "hello world");
  CHECK(scratch.entries() == 1);
  CHECK((fs::status(scratch / "a.txt").permissions() & fs::perms::mask) == fs::perms(0644));
}

TEST_CASE("AtomicFile, AtomicFolder: what is replaced hands its permissions on") {
  const ScratchFolder scratch;
  const auto permissions = [&scratch](const char* name) {
    return fs::status(scratch / name).permissions() & fs::perms::mask;
  };
  for (const fs::perms mode : {fs::perms(0600), fs::perms(0440), fs::perms(0666)}) {
    spill(scratch / "a.txt", "old");
    fs::permissions(scratch / "a.txt", mode);
    write_file_atomically(scratch / "a.txt", "new");
    CHECK(permissions("a.txt") == (mode | fs::perms(0600)));
    fs::remove(scratch / "a.txt");
  }
  fs::create_directory(scratch / "folder");
  for (const fs::perms mode : {fs::perms(0700), fs::perms(0777)}) {
    fs::permissions(scratch / "folder", mode);
    AtomicFolder folder(scratch / "folder");
    spill(folder.temporary() / "a.txt", "new");
    folder.commit(/*replace=*/true);
    CHECK(permissions("folder") == mode);
    CHECK(fs::exists(scratch / "folder" / "a.txt"));
  }
  // New files and folders of a shared folder belong to its group.
  fs::permissions(scratch.path(), fs::perms::set_gid, fs::perm_options::add);
  AtomicFolder folder(scratch / "folder");
  folder.commit(/*replace=*/true);
  CHECK(permissions("folder") == (fs::perms(0777) | fs::perms::set_gid));
}

TEST_CASE("AtomicFile: without commit nothing remains and the old file stays") {
  const ScratchFolder scratch;
  spill(scratch / "a.txt", "old");
  {
    AtomicFile file(scratch / "a.txt");
    file.write("new");
  }
  CHECK(slurp(scratch / "a.txt") == "old");
  CHECK(scratch.entries() == 1);
  write_file_atomically(scratch / "a.txt", "new");
  CHECK(slurp(scratch / "a.txt") == "new");
  CHECK(scratch.entries() == 1);
}

TEST_CASE(
    "AtomicFile: a killed writer leaves the old file, and the next writer removes its temporary "
    "file") {
  const ScratchFolder scratch;
  spill(scratch / "a.txt", "old");
  const auto ending = in_child([&] {
    AtomicFile file(scratch / "a.txt");
    file.write("half");
    ::raise(SIGKILL);
    return 0;
  });
  CHECK(ending.signal == SIGKILL);
  CHECK(slurp(scratch / "a.txt") == "old");
  CHECK(scratch.entries() == 2);
  write_file_atomically(scratch / "a.txt", "new");
  CHECK(slurp(scratch / "a.txt") == "new");
  CHECK(scratch.entries() == 1);
}

TEST_CASE("TemporaryPath: only leftovers of dead processes and of this name are removed") {
  const ScratchFolder scratch;
  const std::string dead = std::to_string(dead_process());
  const std::string alive = std::to_string(::getppid());
  const std::string here = "." + this_machine() + ".";
  const std::vector<std::string> kept = {
      ".a.txt" + here + alive + ".tmp", ".b.txt" + here + dead + ".tmp", ".a.txt" + here + dead,
      ".a.txt" + here + "x" + dead + ".tmp", "a.txt" + here + dead + ".tmp",
      ".a.txt" + here + ".tmp", ".a.txt" + here + "-1.tmp", ".a.txt." + dead + ".tmp",
      here + dead + ".tmp",
      // This name is another machine's, on which the process may live.
      ".a.txt.0a1b2c3d." + dead + ".tmp"};
  for (const std::string& name : kept) spill(scratch / name, "x");
  spill(scratch / (".a.txt" + here + dead + ".tmp"), "x");
  // This leftover has our own process number, as happens in containers.
  spill(scratch / (".a.txt" + here + std::to_string(::getpid()) + ".tmp"),
        "much longer than the file");
  write_file_atomically(scratch / "a.txt", "new");
  for (const std::string& name : kept) CHECK(fs::exists(scratch / name));
  CHECK(scratch.entries() == kept.size() + 1);
  CHECK(slurp(scratch / "a.txt") == "new");
}

TEST_CASE("TemporaryPath: a process that has ended, but has no exit code yet, is dead") {
  const ScratchFolder scratch;
  const pid_t zombie = ::fork();
  if (zombie == 0) ::_exit(0);
  siginfo_t ended = {};
  ::waitid(P_PID, static_cast<id_t>(zombie), &ended, WEXITED | WNOWAIT);
  REQUIRE(::kill(zombie, 0) == 0);
  spill(scratch / (".a.txt." + this_machine() + "." + std::to_string(zombie) + ".tmp"), "x");
  write_file_atomically(scratch / "a.txt", "new");
  CHECK(scratch.entries() == 1);
  ::waitpid(zombie, nullptr, 0);
}

TEST_CASE("AtomicFile, AtomicFolder: names up to the file system's limit of 255 bytes") {
  const ScratchFolder scratch;
  // The two names differ only at the end; code points of two bytes are not cut.
  std::string umlauts = "n";
  while (umlauts.size() < 230) umlauts += "\u00e4";
  for (const std::string& begin : {std::string(231, 'n'), umlauts}) {
    const std::string one = begin + std::string(24, '1'), two = begin + std::string(24, '2');
    const auto ending = in_child([&] {
      AtomicFolder folder(scratch / one);
      AtomicFile file(scratch / two);
      const std::string temporary = folder.temporary().filename();
      if (temporary.size() > 251 || find_invalid_utf8(temporary) < temporary.size()) return 1;
      spill(folder.temporary() / "half", "half");
      ::raise(SIGKILL);
      return 0;
    });
    CHECK(ending.signal == SIGKILL);
    CHECK(scratch.entries() == 2);
    // Each name has its own leftover.
    write_file_atomically(scratch / two, "new");
    CHECK(slurp(scratch / two) == "new");
    CHECK(scratch.entries() == 2);
    for (int round = 0; round < 2; ++round) AtomicFolder(scratch / one).commit();
    CHECK(fs::is_empty(scratch / one));
    CHECK(scratch.entries() == 2);
    fs::remove_all(scratch / one);
    fs::remove_all(scratch / two);
  }
}

TEST_CASE("parse_temporary_name: reads the names that AtomicFile and AtomicFolder write") {
  const ScratchFolder scratch;
  const AtomicFolder folder(scratch / "run.7");
  const std::string name = folder.temporary().filename();
  const auto read = parse_temporary_name(name);
  REQUIRE(read.has_value());
  CHECK(read->name == "run.7");
  CHECK(read->machine == this_machine());
  CHECK(read->process == ::getpid());
  CHECK_FALSE(read->moved_away);
  CHECK(parse_temporary_name(name + ".old")->moved_away);
  for (const char* other : {"", ".", ".tmp", ".old", ".0a1b2c3d.12.tmp", "..0a1b2c3d.12.tmp",
                            ".run.0a1b2c3.12.tmp", ".run.0A1B2C3D.12.tmp", ".run.0a1b2c3d.0.tmp",
                            ".run.0a1b2c3d.12k.tmp", ".run.0a1b2c3d.12.tmp.", ".run.old.tmp"}) {
    CAPTURE(std::string(other));
    CHECK_FALSE(parse_temporary_name(other).has_value());
  }
}

TEST_CASE("this_machine: processes of other containers have other temporary names") {
  const auto ending = in_child([] {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWUTS) != 0) return 77;
    const std::string before = this_machine();
    if (before.size() != 8) return 1;
    if (::sethostname("elsewhere", 9) != 0) return 77;
    return this_machine() != before ? 0 : 2;
  });
  CHECK((ending.exit_code == 0 || ending.exit_code == 77));
}

TEST_CASE("TemporaryPath: one name has one writer in a process") {
  const ScratchFolder scratch;
  AtomicFile first(scratch / "a.txt");
  CHECK_THROWS_AS(AtomicFile(scratch / "a.txt"), Error);
  // Other spellings of this name.
  fs::create_directory_symlink(".", scratch / "link");
  fs::create_directory(scratch / "folder");
  for (const char* folder : {".", "link", "folder/.."}) {
    CHECK_THROWS_WITH_AS(AtomicFile(scratch / folder / "a.txt"),
                         doctest::Contains("this command is already writing"), Error);
  }
  const AtomicFile other(scratch / "b.txt");
  first.write("1");
  first.commit();
  write_file_atomically(scratch / "a.txt", "2");
  CHECK(slurp(scratch / "a.txt") == "2");
}

TEST_CASE("AtomicFile: names that cannot be written") {
  const ScratchFolder scratch;
  const auto trial = [](const fs::path& path) {
    return complaint([&] { write_file_atomically(path, "x"); });
  };
  CHECK(trial(scratch / "none" / "a.txt") == (scratch / "none/a.txt").string() + ": the folder " +
                                                 (scratch / "none").string() +
                                                 " does not exist; create it first");
  CHECK(trial(scratch.path()).find("is a directory") != std::string::npos);
  CHECK(trial("/dev/full").find("/dev/full: this is a device") == 0);
  CHECK(fs::is_character_file("/dev/full"));
  spill(scratch / "file", "x");
  CHECK(trial(scratch / "file" / "a.txt").find("not a directory") != std::string::npos);
  for (const char* name : {"", ".", "..", "/"}) CHECK_FALSE(trial(name).empty());
  CHECK_FALSE(trial(scratch / std::string(300, 'n')).empty());
}

TEST_CASE("AtomicFile: symbolic links stay, and the file that they lead to is replaced") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "far");
  spill(scratch / "far" / "real", "old");
  fs::create_symlink("far/real", scratch / "near");
  fs::create_symlink("near", scratch / "link");
  write_file_atomically(scratch / "link", "new");
  CHECK(fs::is_symlink(scratch / "link"));
  CHECK(fs::is_symlink(scratch / "near"));
  CHECK(slurp(scratch / "far" / "real") == "new");
  fs::create_symlink("far/none", scratch / "dangling");
  write_file_atomically(scratch / "dangling", "first");
  CHECK(slurp(scratch / "far" / "none") == "first");
  fs::create_symlink("loop", scratch / "loop");
  CHECK_FALSE(complaint([&] { write_file_atomically(scratch / "loop", "x"); }).empty());
}

TEST_CASE("AtomicFile: a link to an open file, as /dev/stdout is, stays") {
  const ScratchFolder scratch;
  const auto ending = in_child(
      [&] {
        fs::create_symlink("/proc/self/fd/1", scratch / "stdout");
        const std::string said = complaint([&] { write_file_atomically(scratch / "stdout", "x"); });
        return said.find("stands for an open file") != std::string::npos ? 0 : 1;
      },
      (scratch / "file").string());
  CHECK(ending.exit_code == 0);
  CHECK(fs::is_symlink(scratch / "stdout"));
}

TEST_CASE("AtomicFile: a plain name goes to the current folder") {
  const ScratchFolder scratch;
  const auto ending = in_child([&] {
    fs::current_path(scratch.path());
    write_file_atomically("a.txt", "here");
    AtomicFolder folder("b/");
    folder.commit();
    return 0;
  });
  CHECK(ending.exit_code == 0);
  CHECK(slurp(scratch / "a.txt") == "here");
  CHECK(fs::is_directory(scratch / "b"));
}

TEST_CASE("AtomicFolder: a folder is complete when it appears") {
  const ScratchFolder scratch;
  {
    AtomicFolder folder(scratch / "run");
    spill(folder.temporary() / "one", "1");
    fs::create_directory(folder.temporary() / "sub");
    spill(folder.temporary() / "sub/two", "2");
    CHECK_FALSE(fs::exists(scratch / "run"));
    folder.commit();
    CHECK_THROWS_AS(folder.commit(), std::logic_error);
  }
  CHECK(slurp(scratch / "run/sub/two") == "2");
  CHECK(scratch.entries() == 1);
}

TEST_CASE("AtomicFolder: a folder is replaced, not merged") {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "run/deep");
  spill(scratch / "run/deep/old", "old");
  {
    AtomicFolder folder(scratch / "run/");
    spill(folder.temporary() / "new", "new");
  }
  CHECK(slurp(scratch / "run/deep/old") == "old");
  AtomicFolder folder(scratch / "run/");
  spill(folder.temporary() / "new", "new");
  folder.commit();
  CHECK(slurp(scratch / "run/new") == "new");
  CHECK_FALSE(fs::exists(scratch / "run/deep"));
  CHECK(scratch.entries() == 1);
}

TEST_CASE("AtomicFolder: a reader always finds a complete folder while it is replaced") {
  const ScratchFolder scratch;
  const auto write = [&](int round) {
    AtomicFolder folder(scratch / "run");
    spill(folder.temporary() / "value", std::to_string(round));
    folder.commit();
  };
  write(0);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int round = 1; round <= 30; ++round) write(round);
    done = true;
  });
  int missing = 0;
  while (!done) {
    if (!fs::exists(scratch / "run")) ++missing;
  }
  writer.join();
  CHECK(missing == 0);
  CHECK(slurp(scratch / "run/value") == "30");
  CHECK(scratch.entries() == 1);
}

TEST_CASE("AtomicFolder: a killed writer of a folder leaves the old one") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "run");
  spill(scratch / "run/old", "old");
  const auto ending = in_child([&] {
    const AtomicFolder folder(scratch / "run");
    spill(folder.temporary() / "half", "half");
    ::raise(SIGKILL);
    return 0;
  });
  CHECK(ending.signal == SIGKILL);
  CHECK(slurp(scratch / "run/old") == "old");
  CHECK(scratch.entries() == 2);
  AtomicFolder(scratch / "run").commit();
  CHECK(fs::is_empty(scratch / "run"));
  CHECK(scratch.entries() == 1);
}

TEST_CASE("AtomicFile: a full disk") {
  const ScratchFolder scratch;
  const auto ending = in_child([&] {
    if (!mount_small_disk(scratch.path())) return 77;
    spill(scratch / "a.txt", "old");
    const std::string said =
        complaint([&] { write_file_atomically(scratch / "a.txt", std::string(1 << 20, 'x')); });
    const std::string expected = (scratch / "a.txt").string() + ": cannot write: no space left";
    if (said.find(expected) != 0) throw std::runtime_error(said);
    return slurp(scratch / "a.txt") == "old" && scratch.entries() == 1 ? 0 : 2;
  });
  if (ending.exit_code == 77) return;
  CHECK(ending.exit_code == 0);
  CHECK(ending.err == "");
}

TEST_CASE("AtomicFile, AtomicFolder: a mount point is refused before anything is written") {
  const ScratchFolder scratch;
  const auto ending = in_child([&] {
    fs::create_directory(scratch / "disk");
    if (!mount_small_disk(scratch / "disk")) return 77;
    spill(scratch / "source", "old");
    spill(scratch / "file", "");
    if (::mount((scratch / "source").c_str(), (scratch / "file").c_str(), nullptr, MS_BIND,
                nullptr) != 0) {
      return 77;
    }
    struct statx status = {};
    ::statx(AT_FDCWD, (scratch / "disk").c_str(), 0, STATX_TYPE, &status);
    if ((status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0) return 77;  // before Linux 5.8
    const std::string folder = complaint([&] { const AtomicFolder refused(scratch / "disk"); });
    const std::string file = complaint([&] { const AtomicFile refused(scratch / "file"); });
    for (const std::string& said : {folder, file}) {
      if (said.find("a mount point cannot be replaced") == std::string::npos) {
        throw std::runtime_error(said);
      }
    }
    AtomicFolder(scratch / "disk/new").commit();
    return scratch.entries() == 3 ? 0 : 2;
  });
  if (ending.exit_code == 77) return;
  CHECK(ending.exit_code == 0);
  CHECK(ending.err == "");
}

TEST_CASE("AtomicFolder: a folder is replaced in two steps where names cannot be exchanged") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "run");
  spill(scratch / "run/old", "old");
  fs::create_directory(scratch / "fresh");
  spill(scratch / "fresh/new", "new");
  internal::replace_in_two_steps(scratch / "fresh", scratch / "run");
  CHECK(slurp(scratch / "run/new") == "new");
  CHECK(slurp(scratch / "fresh/old") == "old");
  CHECK(scratch.entries() == 2);
  CHECK_THROWS_AS(internal::replace_in_two_steps(scratch / "none", scratch / "run"), SystemError);
  CHECK(slurp(scratch / "run/new") == "new");
}

TEST_CASE("AtomicFolder: an old folder that was moved away is kept until there is a new one") {
  const ScratchFolder scratch;
  const std::string away =
      ".run." + this_machine() + "." + std::to_string(dead_process()) + ".tmp.old";
  fs::create_directory(scratch / away);
  AtomicFolder(scratch / "run").commit();
  CHECK(fs::exists(scratch / away));
  AtomicFolder(scratch / "run").commit();
  CHECK_FALSE(fs::exists(scratch / away));
}

TEST_CASE("AtomicFile: a change of the current folder loses no temporary file") {
  const ScratchFolder scratch;
  const auto ending = in_child([&] {
    fs::current_path(scratch.path());
    {
      AtomicFile file("a.txt");
      fs::current_path("/");
    }
    return scratch.entries() == 0 ? 0 : 1;
  });
  CHECK(ending.exit_code == 0);
}

TEST_CASE("AtomicFolder: folders that cannot be made") {
  const ScratchFolder scratch;
  spill(scratch / "file", "x");
  CHECK(complaint([&] { AtomicFolder(scratch / "file"); }).find("cannot write a folder here") !=
        std::string::npos);
  CHECK(complaint([&] { AtomicFolder(scratch / "none" / "run"); }).find("does not exist") !=
        std::string::npos);
  CHECK(slurp(scratch / "file") == "x");
  CHECK(scratch.entries() == 1);
}

}  // namespace ql
