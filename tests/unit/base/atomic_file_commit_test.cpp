// Tests AtomicFolder::commit(): other folders that appear meanwhile, and errors of fsync and
// rename.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "unit/own_fsync.h"
#include "unit/scratch.h"

namespace ql {

using test::ScratchFolder;
using test::slurp;
using test::spill;

namespace {

bool can_exchange = true;  // false: as on a file system that cannot exchange names
fs::path lower_folder;     // cannot be renamed, as in a lower layer of OverlayFS

bool removes_all = true;  // false: a file of the name kUnremovable cannot be removed
constexpr const char* kUnremovable = "unremovable";

bool is_lower(const char* path) {
  std::error_code ignored;
  return fs::equivalent(path, lower_folder, ignored);
}

// Makes the fsync() of one folder fail.
test::BeforeFsync failing_at(const fs::path& folder) {
  return test::BeforeFsync([folder](int descriptor) {
    struct stat wanted = {}, found = {};
    ::stat(folder.c_str(), &wanted);
    ::fstat(descriptor, &found);
    return wanted.st_ino == found.st_ino ? EIO : 0;
  });
}

}  // namespace

}  // namespace ql

// These functions replace the system's.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if (ql::is_lower(from) || ql::is_lower(to)) {
    errno = EXDEV;
    return -1;
  }
  if (ql::can_exchange || (flags & RENAME_EXCHANGE) == 0) {
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  }
  errno = EINVAL;
  return -1;
}

extern "C" int unlinkat(int folder, const char* name, int flags) noexcept {
  if (!ql::removes_all && ql::fs::path(name).filename() == ql::kUnremovable) {
    errno = EPERM;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

namespace ql {

TEST_CASE("AtomicFile: the new name is on the disk before commit() returns") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "a.txt";
  AtomicFile file(path);
  file.write("new");
  // Each fsync: of the file while it has no name yet, and of the folder when it has one.
  std::vector<std::string> synced;
  {
    const test::BeforeFsync note([&](int descriptor) {
      struct stat status = {};
      ::fstat(descriptor, &status);
      synced.push_back((S_ISDIR(status.st_mode) ? "folder, " : "file, ") +
                       std::string(fs::exists(path) ? "named" : "unnamed"));
      return 0;
    });
    file.commit();
  }
  CHECK(synced == std::vector<std::string>{"file, unnamed", "folder, named"});
  const test::BeforeFsync failing = failing_at(scratch.path());
  CHECK_THROWS_WITH_AS(write_file_atomically(path, "newer"), doctest::Contains("cannot fsync"),
                       SystemError);
}

TEST_CASE("AtomicFolder: a folder that cannot be renamed is copied away and replaced") {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  const auto make_lower = [&run] {
    fs::create_directories(run / "deep");
    spill(run / "deep/old", "old");
    fs::create_symlink("deep/old", run / "link");
    lower_folder = run;
  };
  make_lower();
  {
    const test::BeforeFsync failing = failing_at(scratch.path());
    AtomicFolder folder(run);
    spill(folder.temporary() / "new", "new");
    CHECK_THROWS_WITH_AS(folder.commit(), doctest::Contains("run: cannot fsync"), SystemError);
  }
  CHECK(slurp(run / "deep/old") == "old");
  CHECK(fs::read_symlink(run / "link") == "deep/old");
  CHECK(scratch.entries() == 1);
  fs::remove_all(run);

  make_lower();
  {
    // The copy cannot be written, as on a full disk.
    AtomicFolder folder(run);
    folder.sync();
    const test::BeforeFsync failing([](int) { return ENOSPC; });
    CHECK_THROWS_WITH_AS(folder.commit(), doctest::Contains("run: cannot fsync: no space"),
                         SystemError);
  }
  CHECK(slurp(run / "deep/old") == "old");
  CHECK(scratch.entries() == 1);

  AtomicFolder folder(run);
  spill(folder.temporary() / "new", "new");
  folder.commit();
  CHECK(slurp(run / "new") == "new");
  CHECK_FALSE(fs::exists(run / "deep"));
  CHECK(scratch.entries() == 1);
  lower_folder.clear();
}

TEST_CASE("AtomicFolder: a read-only old folder is removed, too, or a warning names it") {
  const ScratchFolder scratch;
  const auto ending = test::in_child([&] {
    // For root no folder is read-only.
    if (::getuid() == 0 &&
        (::chown(scratch.path().c_str(), 65534, 65534) != 0 || ::setgid(65534) != 0 ||
         ::setuid(65534) != 0 || ::access(scratch.path().c_str(), W_OK) != 0)) {
      return 77;
    }
    std::string said;
    set_log_sink([&said](LogLevel, const std::string& line) { said += line; });
    const auto replace_read_only = [&](const fs::path& read_only) {
      fs::create_directories(read_only);
      spill(read_only / "old", "old");
      fs::permissions(read_only, fs::perms(0555));
      AtomicFolder folder(scratch / "run");
      spill(folder.temporary() / "new", "new");
      const fs::path temporary = folder.temporary();
      folder.commit();
      return temporary;
    };
    replace_read_only(scratch / "run");
    if (slurp(scratch / "run/new") != "new" || scratch.entries() != 1 || !said.empty()) return 1;
    // Nothing that the programs replace has folders in it.
    const fs::path rest = replace_read_only(scratch / "run/deep");
    const bool warned = said.find("run: the old folder cannot be removed and remains as " +
                                  rest.string() + " (") != std::string::npos;
    fs::permissions(rest / "deep", fs::perms::owner_all);
    return slurp(scratch / "run/new") == "new" && warned ? 0 : 2;
  });
  CHECK((ending.exit_code == 0 || ending.exit_code == 77));
}

TEST_CASE("AtomicFolder: the copy of a folder that can be neither renamed nor removed stays") {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run", copy = scratch / ".run.copy";
  fs::create_directory(run);
  spill(run / "old", "old");
  spill(run / kUnremovable, "unremovable");
  lower_folder = run;
  {
    // Another command has left its copy since this one began.
    AtomicFolder folder(run);
    fs::create_directory(copy);
    spill(copy / "theirs", "theirs");
    CHECK_THROWS_WITH_AS(folder.commit(), doctest::Contains("cannot copy the old folder"),
                         SystemError);
    CHECK(slurp(copy / "theirs") == "theirs");
    fs::remove_all(copy);
  }
  CHECK(slurp(run / "old") == "old");
  CHECK(scratch.entries() == 1);
  removes_all = false;
  CHECK_THROWS_WITH_AS(AtomicFolder(run).commit(),
                       doctest::Contains("remove it, after copying it to "), SystemError);
  removes_all = true;
  lower_folder.clear();
  CHECK_THROWS_WITH_AS(AtomicFolder{run}, doctest::Contains("rename it to"), Error);
  CHECK(slurp(copy / "old") == "old");
  CHECK(slurp(copy / kUnremovable) == "unremovable");
  CHECK(scratch.entries() == 2);
  fs::remove_all(copy);
  CHECK_NOTHROW(AtomicFolder{run});
}

TEST_CASE(
    "AtomicFolder: a folder that may replace nothing takes a free name or that of an empty "
    "folder") {
  const ScratchFolder scratch;
  for (const bool is_there : {false, true}) {
    CAPTURE(is_there);
    fs::remove_all(scratch / "run");
    if (is_there) fs::create_directory(scratch / "run");
    AtomicFolder folder(scratch / "run");
    spill(folder.temporary() / "new", "new");
    folder.commit(false);
    CHECK(slurp(scratch / "run/new") == "new");
    CHECK(scratch.entries() == 1);
  }
}

TEST_CASE("AtomicFolder: a folder that took the name after the last check stays") {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  {
    AtomicFolder folder(run);
    spill(folder.temporary() / "new", "new");
    folder.sync();
    SUBCASE("a folder with a file") {
      fs::create_directory(run);
      spill(run / "theirs", "precious");
      CHECK_THROWS_WITH_AS(folder.commit(false),
                           doctest::Contains("run: another program created this"), Error);
      CHECK(slurp(run / "theirs") == "precious");
    }
    SUBCASE("a file") {
      spill(run, "precious");
      CHECK_THROWS_WITH_AS(folder.commit(false),
                           doctest::Contains("run: another program created this"), Error);
      CHECK(slurp(run) == "precious");
    }
    SUBCASE("a link") {
      fs::create_directory_symlink("elsewhere", run);
      CHECK_THROWS_WITH_AS(folder.commit(false),
                           doctest::Contains("run: another program created this"), Error);
      CHECK(fs::read_symlink(run) == "elsewhere");
    }
  }
  CHECK(scratch.entries() == 1);
}

TEST_CASE("AtomicFolder: when the new folder is not sure to stay, the old one does") {
  for (const bool exchanges : {true, false}) {
    CAPTURE(exchanges);
    can_exchange = exchanges;
    const ScratchFolder scratch;
    const auto write = [&](const std::string& text) {
      AtomicFolder folder(scratch / "run");
      spill(folder.temporary() / "text", text);
      folder.commit();
    };
    {
      const test::BeforeFsync failing = failing_at(scratch.path());
      CHECK_THROWS_WITH_AS(write("first"), doctest::Contains("run: cannot fsync"), SystemError);
      CHECK(scratch.entries() == 0);
    }
    write("old");
    {
      const test::BeforeFsync failing = failing_at(scratch.path());
      CHECK_THROWS_WITH_AS(write("new"), doctest::Contains("run: cannot fsync"), SystemError);
      CHECK(slurp(scratch / "run/text") == "old");
      CHECK(scratch.entries() == 1);
    }
    write("new");
    CHECK(slurp(scratch / "run/text") == "new");
    CHECK(scratch.entries() == 1);
  }
  can_exchange = true;
}

TEST_CASE("AtomicFolder: commit() does not fsync again what sync() has put on the disk") {
  const ScratchFolder scratch;
  AtomicFolder folder(scratch / "run");
  spill(folder.temporary() / "one", "1");
  spill(folder.temporary() / "two", "2");
  int calls = 0;
  const test::BeforeFsync count([&](int) {
    ++calls;
    return 0;
  });
  folder.sync();
  CHECK(calls == 3);
  folder.commit();
  CHECK(calls == 4);  // the folder around it
}

}  // namespace ql
