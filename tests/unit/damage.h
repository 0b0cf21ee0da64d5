// All damage to files that the tests do, as in transport: bits flip, ends are lost, blocks are
// lost, doubled, exchanged or overwritten. No reader may accept a damaged file as a good one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ql::test {

// The same seed does the same damage, on every machine.
class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}

  // Returns a text that differs from `good`, which must not be empty. Two of three times one bit is
  // flipped or the end is cut off.
  std::string operator()(const std::string& good) {
    std::string bytes = good;
    while (bytes == good) spoil(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  // Returns a length up to `limit`, mostly short.
  std::size_t length(std::size_t limit) {
    return 1 + below(std::min(limit, below(2) == 0 ? std::size_t{8} : limit));
  }
  void flip(std::string& bytes) {
    char& byte = bytes[below(bytes.size())];
    byte = static_cast<char>(byte ^ (1 << below(8)));
  }

  void spoil(std::string& bytes) {
    const std::size_t size = bytes.size(), at = below(size), part = length(size - at);
    const std::size_t kind = below(18);
    if (kind < 8) return flip(bytes);
    if (kind < 12) return bytes.resize(at);
    switch (kind) {
      case 12:
        for (std::size_t flips = length(16); flips > 0; --flips) flip(bytes);
        break;
      case 13:
        bytes.replace(at, part, part, below(2) == 0 ? '\0' : '\xFF');
        break;
      case 14:
        bytes.erase(at, part);
        break;
      case 15:
        bytes.insert(below(size + 1), bytes.substr(at, part));
        break;
      case 16:
        std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end());
        break;
      default:
        for (std::size_t i = at; i < at + part; ++i) bytes[i] = static_cast<char>(random_());
    }
  }

  std::mt19937_64 random_;
};

struct Damaged {
  std::string what;  // was done, for CAPTURE
  std::string bytes;
};

// A range of `rounds` random damages to a text, or as many as QL_DAMAGE_ROUNDS says if that is set.
// Each is made when a loop comes to it.
class Damages {
 public:
  Damages(std::string good, int rounds)
      : good_(std::move(good)), rounds_(rounds), damage_(static_cast<unsigned>(good_.size())) {
    if (const char* chosen = std::getenv("QL_DAMAGE_ROUNDS")) rounds_ = std::atoi(chosen);
  }
  struct Iterator {
    Damages* all;
    int round;
    Damaged operator*() const {
      return {"damage " + std::to_string(round), all->damage_(all->good_)};
    }
    Iterator& operator++() {
      ++round;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return round != other.round; }
  };
  Iterator begin() { return {this, 0}; }
  Iterator end() { return {this, rounds_}; }

 private:
  std::string good_;
  int rounds_;
  Damage damage_;
};

inline std::string with_flipped_bit(std::string bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  return bytes;
}

// Returns `good` with each of its first `bits` bits flipped.
inline std::vector<Damaged> flipped_bits(const std::string& good, std::size_t bits = SIZE_MAX) {
  std::vector<Damaged> all;
  for (std::size_t bit = 0; bit < std::min(bits, good.size() * 8); ++bit) {
    all.push_back({"bit " + std::to_string(bit), with_flipped_bit(good, bit)});
  }
  return all;
}

// Returns every beginning of `good`, the empty one first.
inline std::vector<Damaged> cuts(const std::string& good) {
  std::vector<Damaged> all;
  for (std::size_t size = 0; size < good.size(); ++size) {
    all.push_back({"cut to " + std::to_string(size), good.substr(0, size)});
  }
  return all;
}

}  // namespace ql::test
