#include "base/event_record.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/crc32c_internal.h"
#include "base/little_endian.h"

namespace ql {

namespace {

// Field numbers of event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SessionLogField { kStatus = 1 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
constexpr std::uint64_t kSessionStart = 1;

// The type says how the bytes of a field are to be read.
enum WireType { kVarint = 0, kEightBytes = 1, kCounted = 2, kFourBytes = 5 };

// Seven bits a byte, the lowest first; the highest bit says that another byte follows.
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

// Beyond the largest float is infinity: the conversion itself would be undefined.
float to_float(double value) {
  if (std::abs(value) > static_cast<double>(std::numeric_limits<float>::max())) {
    const float infinity = std::numeric_limits<float>::infinity();
    return value > 0 ? infinity : -infinity;
  }
  return static_cast<float>(value);
}

// Stored checksums are not the sums themselves: data that ends in its own sum always has the same.
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

}  // namespace ql
