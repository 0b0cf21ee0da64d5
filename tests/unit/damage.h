// Damages files as in transport: bits flip, ends are lost, blocks are lost, doubled, exchanged or
// overwritten. No reader may accept a damaged file as a good one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

namespace ql::test {

// Returns how often a test damages each file: `ordinary` times, or QL_DAMAGE_ROUNDS times if that
// is set.
inline int damage_rounds(int ordinary) {
  const char* rounds = std::getenv("QL_DAMAGE_ROUNDS");
  return rounds == nullptr ? ordinary : std::atoi(rounds);
}

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

}  // namespace ql::test
