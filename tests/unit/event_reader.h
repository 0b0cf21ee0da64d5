// Reads event files, written from the descriptions of TFRecord, of protocol buffers' encoding and
// of event.proto. Shares nothing with the writer: its checksum goes bit by bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ql::test {

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool session_start = false;
  std::vector<std::pair<std::string, float>> scalars;
};

inline std::uint32_t crc32c_bit_by_bit(std::string_view data) {
  std::uint32_t crc = ~0U;
  for (const char letter : data) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((crc ^ static_cast<unsigned char>(letter) >> bit) & 1U) != 0;
      crc >>= 1U;
      if (odd) crc ^= 0x82F63B78U;  // 0x1EDC6F41 with its bits in the other order
    }
  }
  return ~crc;
}

// Takes the read bytes off the front.
class EventBytes {
 public:
  explicit EventBytes(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::size_t size() const { return bytes_.size(); }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) throw std::runtime_error("cut off within a record");
    const std::string_view front = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return front;
  }
  // Reads a fixed number of bytes, the lowest first.
  std::uint64_t fixed(std::size_t count) {
    std::uint64_t number = 0;
    const std::string_view front = take(count);
    for (std::size_t i = count; i-- > 0;) {
      number = number << 8U | static_cast<unsigned char>(front[i]);
    }
    return number;
  }
  std::uint64_t varint() {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t byte = fixed(1);
      number |= (byte & 0x7FU) << shift;
      if (byte < 0x80) return number;
    }
    throw std::runtime_error("a varint of more than ten bytes");
  }

 private:
  std::string_view bytes_;
};

// Calls use(field, number, bytes) for every field of a message: `bytes` of a counted one, `number`
// of the others.
template <typename Use>
void read_message(std::string_view message, const Use& use) {
  EventBytes rest(message);
  while (!rest.empty()) {
    const std::uint64_t key = rest.varint();
    std::uint64_t number = 0;
    std::string_view bytes;
    switch (key & 7U) {
      case 0:
        number = rest.varint();
        break;
      case 1:
        number = rest.fixed(8);
        break;
      case 2:
        bytes = rest.take(rest.varint());
        break;
      case 5:
        number = rest.fixed(4);
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
    use(key >> 3U, number, bytes);
  }
}

template <typename Number, typename Bits>
Number from_bits(Bits bits) {
  static_assert(sizeof(Number) == sizeof(Bits), "bits of another size");
  Number number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

inline std::pair<std::string, float> read_scalar(std::string_view message) {
  std::pair<std::string, float> scalar;
  read_message(message, [&](std::uint64_t field, std::uint64_t number, std::string_view bytes) {
    if (field == 1) scalar.first = bytes;
    if (field == 2) scalar.second = from_bits<float>(static_cast<std::uint32_t>(number));
  });
  return scalar;
}

inline ReadEvent read_event(std::string_view message) {
  ReadEvent event;
  read_message(message, [&](std::uint64_t field, std::uint64_t number, std::string_view bytes) {
    if (field == 1) event.wall_time = from_bits<double>(number);
    if (field == 2) event.step = static_cast<std::int64_t>(number);
    if (field == 3) event.file_version = bytes;
    if (field == 5) {
      read_message(bytes, [&](std::uint64_t inner, std::uint64_t, std::string_view value) {
        if (inner == 1) event.scalars.push_back(read_scalar(value));
      });
    }
    if (field == 7) {
      read_message(bytes, [&](std::uint64_t inner, std::uint64_t status, std::string_view) {
        event.session_start = inner == 1 && status == 1;
      });
    }
  });
  return event;
}

// Reads all complete records, as a loader does. It ignores a last one that is cut off; a wrong
// checksum is an error.
inline std::vector<ReadEvent> read_events(std::string_view file) {
  constexpr std::size_t kFrame = 8 + 4 + 4;
  const auto check = [](std::string_view data, std::uint64_t masked) {
    const auto turned = static_cast<std::uint32_t>(masked - 0xA282EAD8U);
    if ((turned >> 17U | turned << 15U) != crc32c_bit_by_bit(data)) {
      throw std::runtime_error("checksum mismatch");
    }
  };
  std::vector<ReadEvent> events;
  EventBytes rest(file);
  while (rest.size() >= kFrame) {
    const std::string_view length_bytes = rest.take(8);
    const std::uint64_t length = EventBytes(length_bytes).fixed(8);
    check(length_bytes, rest.fixed(4));
    if (rest.size() < length || rest.size() - length < 4) return events;
    const std::string_view message = rest.take(length);
    check(message, rest.fixed(4));
    events.push_back(read_event(message));
  }
  return events;
}

}  // namespace ql::test
