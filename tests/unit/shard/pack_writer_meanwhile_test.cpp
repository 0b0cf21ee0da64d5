// Tests in which something else takes the name of a folder while the folder's files are synced.
#include <doctest/doctest.h>

#include <functional>

#include "interop/token_files.h"
#include "shard/merge.h"
#include "unit/own_fsync.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::BeforeFsync;
using ql::test::ScratchFolder;
using ql::test::slurp;

namespace {

using Make = std::function<void(const fs::path& folder, bool force)>;

// Returns the ways to make a folder from the packed one `data`.
std::vector<Make> ways_to_make(const fs::path& data) {
  return {[](const fs::path& folder, bool force) {
            PackOptions options;
            options.force = force;
            pack(folder, {{1, 2}}, header_of(10), options);
          },
          [data](const fs::path& folder, bool force) {
            const MultiReader joined({data.string()});
            PackOptions options;
            options.force = force;
            merge_folders(joined, folder, joined.header(Json::object()), options,
                          [](std::int64_t) {});
          },
          [data](const fs::path& folder, bool /*force*/) {
            MultiReader joined({data.string()});
            interop::export_tokens(joined, folder, {}, [](std::int64_t) {});
          }};
}

// Returns the message of `make` when `meanwhile` happens in the first fsync().
std::string complaint_about(const std::function<void()>& meanwhile,
                            const std::function<void()>& make) {
  bool happened = false;
  const BeforeFsync once([&](int) {
    if (!happened) meanwhile();
    happened = true;
    return 0;
  });
  std::string said = complaint(make);
  CHECK(happened);
  return said;
}

}  // namespace

TEST_CASE("PackWriter: files that are not qlbin's are never replaced, whenever they came") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}}, header_of(10));
  const fs::path made = scratch / "made";
  int way = 0;
  for (const Make& make : ways_to_make(scratch / "data")) {
    for (const bool force : {false, true}) {
      CAPTURE(way);
      CAPTURE(force);
      fs::remove_all(made);
      const auto put = [&] {
        fs::create_directory(made);
        overwrite(made / "theirs", "precious");
      };
      CHECK(contains(complaint_about(put, [&] { make(made, force); }), "made: exists and "));
      CHECK(slurp(made / "theirs") == "precious");
      CHECK(scratch.entries() == 2);
    }
    ++way;
  }
}

TEST_CASE("PackWriter: of two that make one folder the first one has it, unless forced") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}}, header_of(10));
  const fs::path made = scratch / "made";
  const auto put = [&] { fs::copy(scratch / "data", made); };
  const std::vector<Make> ways = ways_to_make(scratch / "data");
  for (std::size_t way = 0; way < ways.size(); ++way) {
    CAPTURE(way);
    fs::remove_all(made);
    const std::string said = complaint_about(put, [&] { ways[way](made, false); });
    const bool packs = way < 2;
    CHECK(contains(said, packs ? "holds packed data already" : "exists and is not empty"));
    CHECK(slurp(made / "manifest.json") == slurp(scratch / "data" / "manifest.json"));
    CHECK(scratch.entries() == 2);
    if (!packs) continue;
    fs::remove_all(made);
    CHECK(complaint_about(put, [&] { ways[way](made, true); }).empty());
    CHECK(TokenReader(made).tokens() == 2);
    CHECK(scratch.entries() == 2);
  }
}

TEST_CASE("PackWriter: an empty folder that came meanwhile does no harm") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}}, header_of(10));
  const fs::path made = scratch / "made";
  for (const Make& make : ways_to_make(scratch / "data")) {
    fs::remove_all(made);
    CHECK(complaint_about([&] { fs::create_directory(made); }, [&] { make(made, false); }).empty());
    CHECK_FALSE(fs::is_empty(made));
    CHECK(scratch.entries() == 2);
  }
}

}  // namespace ql::shard
