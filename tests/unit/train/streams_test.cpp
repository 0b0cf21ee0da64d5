// Compares the rows' parts of the data with a walk of one step at a time.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "train/streams.h"
#include "unit/complaint.h"
#include "unit/scratch.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

// Returns the tokens that row `row` reads in step `step`. It goes there one step at a time.
std::vector<std::int64_t> oracle(const std::vector<shard::TokenId>& ids, std::int64_t batch,
                                 std::int64_t segment, std::int64_t row, std::int64_t step) {
  const std::int64_t length = static_cast<std::int64_t>(ids.size()) / batch;
  std::int64_t offset = 0;
  for (std::int64_t s = 0; s < step; ++s) {
    offset += segment;
    if (offset + segment + 1 > length) offset = 0;
  }
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i <= segment; ++i) {
    tokens.push_back(ids[static_cast<std::size_t>(row * length + offset + i)]);
  }
  return tokens;
}

void compare_with_oracle(std::size_t count, std::int64_t batch, std::int64_t segment) {
  const test::ScratchFolder scratch;
  const auto ids = test::scrambled(count, 97);
  test::pack(scratch / "data", ids, 97);
  shard::MultiReader reader({(scratch / "data").string()});
  Streams streams(reader, batch, segment);
  std::vector<std::int64_t> found(static_cast<std::size_t>(batch * (segment + 1)));
  std::int64_t epochs = 0;
  for (std::int64_t step = 0; epochs < 4; ++step) {
    epochs += streams.starts_epoch(step) ? 1 : 0;
    CHECK(streams.epoch(step) == epochs - 1);
    streams.read(step, found.data());
    for (std::int64_t row = 0; row < batch; ++row) {
      const auto* row_ids = found.data() + row * (segment + 1);
      REQUIRE(std::vector(row_ids, row_ids + segment + 1) ==
              oracle(ids, batch, segment, row, step));
    }
  }
}

}  // namespace

TEST_CASE("Streams: rows read their parts in segments, over and over") {
  compare_with_oracle(1000, 3, 7);
  compare_with_oracle(1000, 1, 16);
  compare_with_oracle(50, 10, 4);    // one step an epoch, no remainder
  compare_with_oracle(59, 10, 4);    // a tail that no row reads
  compare_with_oracle(91, 10, 4);    // two steps an epoch
  compare_with_oracle(2, 1, 1);      // the smallest possible data
  compare_with_oracle(700, 100, 3);  // many rows in one frame
}

TEST_CASE("set_cursor: a moved cursor reads another segment, step after step") {
  const test::ScratchFolder scratch;
  const auto ids = test::scrambled(1000, 97);
  test::pack(scratch / "data", ids, 97);
  shard::MultiReader reader({(scratch / "data").string()});
  Streams streams(reader, 3, 7), plain(reader, 3, 7);  // 47 steps an epoch
  std::vector<std::int64_t> found(24);
  const auto check = [&](std::int64_t step, std::int64_t cursor) {
    CAPTURE(step);
    streams.read(step, found.data());
    for (std::int64_t row = 0; row < 3; ++row) {
      CHECK(std::vector(found.data() + row * 8, found.data() + row * 8 + 8) ==
            oracle(ids, 3, 7, row, cursor));
    }
    CHECK(streams.epoch(step) == plain.epoch(cursor));
    CHECK(streams.position(step) == plain.position(cursor));
    CHECK(streams.starts_epoch(step) == plain.starts_epoch(cursor));
  };
  check(0, 0);
  check(1, 1);
  streams.set_cursor(2, 44);  // drops the tokens that were read ahead for step 2
  for (std::int64_t step = 2; step < 8; ++step) check(step, step + 42);
  streams.set_cursor(3, 100);  // back by steps, on in the data
  check(3, 100);
  check(4, 101);
  streams.set_cursor(5, 102);  // its present position
  check(5, 102);
  streams.set_cursor(50, 2);
  check(50, 2);
}

TEST_CASE("cursor_from: another number of rows continues at the same part of the epoch") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(1000, 5), 5);
  shard::MultiReader reader({(scratch / "data").string()});
  for (const std::int64_t batch : {1, 3, 4, 10, 100}) {
    const Streams before(reader, batch, 7);
    for (const std::int64_t now : {1, 2, 4, 9, 100}) {
      const Streams after(reader, now, 7);
      for (std::int64_t cursor = 0; cursor < 3 * before.steps_per_epoch(); ++cursor) {
        const std::int64_t moved = after.cursor_from(batch, cursor);
        REQUIRE(after.epoch(moved) == before.epoch(cursor));
        // `within` is the segment of the new parts in which the old one begins.
        const std::int64_t part = cursor % before.steps_per_epoch() * after.steps_per_epoch();
        std::int64_t within = 0;
        while ((within + 1) * before.steps_per_epoch() <= part) ++within;
        REQUIRE(after.position(moved) == within * 7);
        REQUIRE((batch != now || moved == cursor));
      }
    }
  }
  CHECK_THROWS_AS(static_cast<void>(Streams(reader, 1, 7).cursor_from(1000, 5)), FormatError);
}

TEST_CASE("Streams: only the step that reads damage finds it") {
  const test::ScratchFolder scratch;
  const auto ids = test::scrambled(600, 97);
  test::pack(scratch / "data", ids, 97);
  shard::MultiReader reader({(scratch / "data").string()});
  const std::filesystem::path shard =
      scratch / "data" / reader.folders().front().manifest().shards.at(1).file;
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(60);
    const auto byte = static_cast<char>(file.get());
    file.seekp(60);
    file.put(static_cast<char>(byte ^ 4));
  }
  Streams streams(reader, 1, 50);  // tokens 200 to 399 are in the damaged shard
  std::vector<std::int64_t> found(51);
  const auto reads = [&](std::int64_t step) {
    try {
      streams.read(step, found.data());
    } catch (const Error&) {
      return false;
    }
    return found.front() == static_cast<std::int64_t>(ids[static_cast<std::size_t>(step) * 50]);
  };
  for (int round = 0; round < 2; ++round) {
    CHECK(reads(0));
    CHECK(reads(1));
    CHECK(reads(2));
    CHECK_FALSE(reads(3));  // its last target is token 200
    CHECK_FALSE(reads(4));
    CHECK(reads(9));
    CHECK(reads(2));
    CHECK(reads(10));
  }
}

TEST_CASE("document_offsets: rows know the documents they are in") {
  const test::ScratchFolder scratch;
  const std::vector<std::size_t> starts{5, 30, 31, 47, 88};
  test::pack(scratch / "data", test::scrambled(100, 5), 5, "made up", starts);
  shard::MultiReader reader({(scratch / "data").string()});
  const Streams streams(reader, 3, 4);
  for (std::int64_t step = 0; step < 2 * streams.steps_per_epoch(); ++step) {
    const std::vector<std::int64_t> document_offsets = streams.document_offsets(step);
    REQUIRE(document_offsets.size() == 3);
    for (std::int64_t row = 0; row < 3; ++row) {
      std::int64_t token = row * 33 + streams.position(step), offset = 0;
      for (; token > 0 && std::count(starts.begin(), starts.end(), token) == 0; --token) ++offset;
      CHECK(document_offsets[static_cast<std::size_t>(row)] == offset);
    }
  }
}

TEST_CASE("Streams: an epoch reads every target of a part except an incomplete segment") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(100, 5), 5);
  shard::MultiReader reader({(scratch / "data").string()});
  CHECK(Streams(reader, 4, 8).steps_per_epoch() == 3);  // parts of 25: 24 targets
  CHECK(Streams(reader, 4, 7).steps_per_epoch() == 3);  // 3 targets are not read
  CHECK(Streams(reader, 4, 24).steps_per_epoch() == 1);
  CHECK(Streams(reader, 4, 8).position(5) == 16);
}

TEST_CASE("Streams: too little data names the largest batch") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(100, 5), 5);
  shard::MultiReader reader({(scratch / "data").string()});
  const auto said = [&](std::int64_t batch, std::int64_t segment) {
    return test::complaint([&] { Streams(reader, batch, segment); });
  };
  CHECK(said(11, 9).find("set batch to 10 or less") != std::string::npos);
  CHECK(said(10, 9).empty());
  CHECK(said(1, 100).find("shorter segment") != std::string::npos);
  CHECK(said(1, 99).empty());
  CHECK(said(0, 9) == "streams: batch is 0, must be at least 1");
  CHECK(said(2, -1) == "streams: segment is -1, must be at least 1");
}

}  // namespace ql::train
