// Tests event files, which an independent reader reads back.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/event_file.h"
#include "base/file.h"
#include "unit/event_reader.h"
#include "unit/scratch.h"

namespace ql {

using test::read_events;
using test::ReadEvent;
using test::ScratchFolder;
using test::slurp;
using test::spill;

TEST_CASE("crc32c: known texts") {
  // These are the check value of the catalogues of CRCs, and the values of RFC 3720, B.4.
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c("") == 0);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
  std::string rising;
  for (char i = 0; i < 32; ++i) rising += i;
  CHECK(crc32c(rising) == 0x46DD794E);
  CHECK(test::crc32c_bit_by_bit("123456789") == 0xE3069283);
  for (std::size_t size = 0; size < 300; ++size) {
    const std::string text(size, static_cast<char>(size * 37));
    CHECK(crc32c(text) == test::crc32c_bit_by_bit(text));
  }
}

TEST_CASE("event_file_start, scalar_event: records have the bytes that other writers give them") {
  const auto bytes = [](const char* hexadecimal) {
    std::string made;
    for (; *hexadecimal != '\0'; hexadecimal += 2) {
      made += static_cast<char>(std::stoi(std::string(hexadecimal, 2), nullptr, 16));
    }
    return made;
  };
  // The records are version 2 at the time 256.5, and the value 1.5 for v/1 in step 1.
  const std::string version = bytes(
      "1800000000000000a37f4b22090000000000087040"
      "1a0d627261696e2e4576656e743a32bc98212b");
  CHECK(event_file_start(256.5).substr(0, version.size()) == version);
  CHECK(scalar_event(256.5, 1, {{"v/1", 1.5}}) ==
        bytes("19000000000000008bf108280900000000000870401001"
              "2a0c0a0a0a03762f31150000c03f2cecc087"));
}

TEST_CASE("scalar_event: events are read back as they were written") {
  const double infinity = std::numeric_limits<double>::infinity();
  std::string file = event_file_start(1.7e9 + 0.25);
  file += scalar_event(1.7e9 + 1, 127, {{"train/loss", 0.1}, {"train/perplexity", 1e300}});
  file += scalar_event(1.7e9 + 2, 128, {{"validation/loss", std::nan("")}});
  file += scalar_event(1.7e9 + 3, INT64_MAX, {{"a", -infinity}, {std::string(200, 'b'), -1e-50}});
  const std::vector<ReadEvent> events = read_events(file);
  REQUIRE(events.size() == 5);
  CHECK(events[0].file_version == "brain.Event:2");
  CHECK(events[0].wall_time == 1.7e9 + 0.25);
  CHECK_FALSE(events[0].session_start);
  CHECK(events[1].session_start);
  CHECK(events[1].step == 0);
  CHECK(events[2].wall_time == 1.7e9 + 1);
  CHECK(events[2].step == 127);
  REQUIRE(events[2].scalars.size() == 2);
  CHECK(events[2].scalars[0] == std::pair<std::string, float>("train/loss", 0.1F));
  CHECK(events[2].scalars[1].second == std::numeric_limits<float>::infinity());
  CHECK(events[3].step == 128);
  CHECK(std::isnan(events[3].scalars.at(0).second));
  CHECK(events[4].step == INT64_MAX);
  CHECK(events[4].scalars.at(0).second == -std::numeric_limits<float>::infinity());
  CHECK(events[4].scalars.at(1).first == std::string(200, 'b'));
  CHECK(events[4].scalars.at(1).second == 0);

  // A cut at any place loses the record that it hits and no record before it.
  std::size_t most = 0;
  for (std::size_t cut = 0; cut <= file.size(); ++cut) {
    const std::size_t found = read_events(file.substr(0, cut)).size();
    CHECK(found >= most);
    most = found;
  }
  CHECK(most == 5);
  file[20] = static_cast<char>(file[20] ^ 1);
  CHECK_THROWS(read_events(file));
}

TEST_CASE("start_event_file: a file replaces those before it, and no others") {
  const ScratchFolder scratch;
  spill(scratch / "events.out.tfevents.0000000007.machine", "somebody's");
  spill(scratch / "events.out.tfevents.x.qltrain", "not a date");
  spill(scratch / "events.out.tfevents.9999999999999999999.qltrain", "not a date");
  const fs::path first = start_event_file(scratch.path(), 1234.75, "");
  CHECK(first.filename() == "events.out.tfevents.0000001234750000.qltrain");
  CHECK(slurp(first) == event_file_start(1234.75));
  AppendFile(first).append(scalar_event(1235, 1, {{"a", 1}}));

  // Two files follow: one at the same time, and one with a clock that was set back.
  const fs::path second = start_event_file(scratch.path(), 1234.75, "");
  CHECK(second.filename() == "events.out.tfevents.0000001234750001.qltrain");
  const fs::path third = start_event_file(scratch.path(), 99, scalar_event(98, 4, {{"a", 2}}));
  CHECK(third.filename() == "events.out.tfevents.0000001234750002.qltrain");
  CHECK(event_files(scratch.path()) == std::vector<fs::path>{third});
  CHECK(scratch.entries() == 4);
  const std::vector<ReadEvent> events = read_events(slurp(third));
  REQUIRE(events.size() == 3);
  CHECK(events[2].step == 4);
  CHECK(start_event_file(scratch.path(), 5000, "").filename() ==
        "events.out.tfevents.0000005000000000.qltrain");
  CHECK_THROWS_AS(start_event_file(scratch / "none", 1, ""), Error);
}

TEST_CASE(
    "start_event_file: two event files of one second have two names, even when the first is gone") {
  const ScratchFolder scratch;
  const fs::path first = start_event_file(scratch.path(), 1.7e9 + 0.25, "");
  fs::remove(first);
  const fs::path second = start_event_file(scratch.path(), 1.7e9 + 0.5, "");
  CHECK(second.filename() == "events.out.tfevents.1700000000500000.qltrain");
  CHECK(first < second);
}

}  // namespace ql
