// Computes random bits as a function of a key and a counter: Philox4x32-10 (Salmon, Moraes, Dror,
// Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once

#include <cstdint>

namespace ql::kernels {

// A generator has nothing to save, and the result does not depend on threads.

constexpr int kPhiloxRounds = 10;
constexpr std::uint32_t kPhiloxFactorA = 0xD2511F53;
constexpr std::uint32_t kPhiloxFactorC = 0xCD9E8D57;

// Holds the key of a round.
struct PhiloxKey {
  explicit PhiloxKey(std::uint64_t key)
      : low(static_cast<std::uint32_t>(key)), high(static_cast<std::uint32_t>(key >> 32)) {}
  void advance() {
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  std::uint32_t low, high;
};

// Runs one round over the counter's four words in place. The words are separate arguments, so that
// the compiler can vectorize loops over many counters.
inline void philox_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d,
                         const PhiloxKey& key) {
  const std::uint64_t product_a = std::uint64_t{kPhiloxFactorA} * a;
  const std::uint64_t product_c = std::uint64_t{kPhiloxFactorC} * c;
  a = static_cast<std::uint32_t>(product_c >> 32) ^ b ^ key.low;
  b = static_cast<std::uint32_t>(product_c);
  c = static_cast<std::uint32_t>(product_a >> 32) ^ d ^ key.high;
  d = static_cast<std::uint32_t>(product_a);
}

struct PhiloxCounter {
  std::uint32_t word[4];
};

// Returns the four random words of `counter` under the 64-bit `key`.
inline PhiloxCounter philox(PhiloxCounter counter, std::uint64_t key) {
  PhiloxKey round_key(key);
  for (int round = 0; round < kPhiloxRounds; ++round, round_key.advance()) {
    philox_round(counter.word[0], counter.word[1], counter.word[2], counter.word[3], round_key);
  }
  return counter;
}

}  // namespace ql::kernels
