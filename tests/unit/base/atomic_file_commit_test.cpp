// Tests AtomicFolder::commit(): other folders that appear meanwhile, and errors of fsync and
// rename.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "unit/own_fsync.h"
#include "unit/scratch.h"

namespace ql {

using test::ScratchFolder;
using test::slurp;
using test::spill;

namespace {

bool can_exchange = true;  // false: as on a file system that cannot exchange names

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

// This function replaces the system's.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if (ql::can_exchange || (flags & RENAME_EXCHANGE) == 0) {
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  }
  errno = EINVAL;
  return -1;
}

namespace ql {

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
