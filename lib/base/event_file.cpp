// Encodes events in the format of protocol buffers, and replaces the event files in a folder by a
// new one.

#include "base/event_file.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/strings.h"

namespace ql {

namespace {

// These are field numbers of event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SessionLogField { kStatus = 1 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
constexpr std::uint64_t kSessionStart = 1;

// The wire type states how the bytes of a field are stored.
enum WireType { kVarint = 0, kEightBytes = 1, kCounted = 2, kFourBytes = 5 };

// Writes seven bits per byte, the lowest bits first. The highest bit of a byte is 1 if another byte
// follows.
void put_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7U) out += static_cast<char>((number & 0x7FU) | 0x80U);
  out += static_cast<char>(number);
}

void put_key(std::string& out, int field, WireType type) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3U | static_cast<std::uint64_t>(type));
}

void put_number(std::string& out, int field, std::uint64_t number) {
  put_key(out, field, kVarint);
  put_varint(out, number);
}

void put_double(std::string& out, int field, double number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  put_key(out, field, kEightBytes);
  append_little_endian(out, bits);
}

void put_float(std::string& out, int field, float number) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  put_key(out, field, kFourBytes);
  append_little_endian(out, bits);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kCounted);
  put_varint(out, bytes.size());
  out += bytes;
}

// A value beyond the largest float becomes infinity: its conversion would be undefined.
float to_float(double value) {
  if (std::abs(value) > static_cast<double>(std::numeric_limits<float>::max())) {
    const float infinity = std::numeric_limits<float>::infinity();
    return value > 0 ? infinity : -infinity;
  }
  return static_cast<float>(value);
}

// A stored checksum is masked: otherwise all data that ends with its own checksum would have the
// same checksum.
std::uint32_t masked_checksum(std::string_view data) {
  const std::uint32_t sum = crc32c(data);
  return (sum >> 15U | sum << 17U) + 0xA282EAD8U;
}

std::string framed(const std::string& message) {
  std::string record;
  append_little_endian(record, static_cast<std::uint64_t>(message.size()));
  append_little_endian(record, masked_checksum(record));
  record += message;
  append_little_endian(record, masked_checksum(message));
  return record;
}

}  // namespace

std::string event_file_start(double time) {
  std::string version, session, start;
  put_double(version, kWallTime, time);
  put_bytes(version, kFileVersion, "brain.Event:2");
  put_number(session, kStatus, kSessionStart);
  put_double(start, kWallTime, time);
  put_bytes(start, kSessionLog, session);
  return framed(version) + framed(start);
}

std::string scalar_event(double time, std::int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, kTag, scalar.tag);
    put_float(value, kSimpleValue, to_float(scalar.value));
    put_bytes(summary, kValue, value);
  }
  std::string event;
  put_double(event, kWallTime, time);
  put_number(event, kStep, static_cast<std::uint64_t>(step));
  put_bytes(event, kSummary, summary);
  return framed(event);
}

constexpr std::int64_t kSecond = 1'000'000;  // in microseconds

// Returns the time in the name of one of our event files, in microseconds since 1970, or nothing
// for another name.
static std::optional<std::int64_t> time_in(const std::string& name) {
  char digits[17] = {};
  int end = 0;
  std::sscanf(name.c_str(), "events.out.tfevents.%16[0-9].qltrain%n", digits, &end);
  if (end != static_cast<int>(name.size()) || std::strlen(digits) != 16) return std::nullopt;
  return parse_integer(digits);
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (time_in(entry->path().filename().string())) files.push_back(entry->path());
  }
  if (error) throw SystemError(folder.string(), "list", error.value());
  std::sort(files.begin(), files.end());
  return files;
}

fs::path start_event_file(const fs::path& folder, double now, std::string_view events) {
  const std::vector<fs::path> before = event_files(folder);
  auto time = std::max<std::int64_t>(0, static_cast<std::int64_t>(now * kSecond));
  for (const fs::path& file : before) time = std::max(time, *time_in(file.filename().string()) + 1);
  fs::path path = folder / fmt::format("events.out.tfevents.{:016}.qltrain", time);
  // AtomicFile's temporary name for `path` would contain "tfevents", and TensorBoard reads every
  // file with "tfevents" in its name.
  const fs::path fresh = folder / "events.new";
  write_file_atomically(fresh, event_file_start(now) + std::string(events));
  std::error_code error;
  fs::rename(fresh, path, error);
  if (error) throw SystemError(fresh.string(), "rename to " + path.string(), error.value());
  for (const fs::path& file : before) {
    fs::remove(file, error);
    if (error) throw SystemError(file.string(), "remove", error.value());
  }
  return path;
}

}  // namespace ql
