// Computes dropout's random bits (Philox), and the mask of the elements that dropout keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/vector.h"

namespace ql::kernels {

// Philox4x32-10 computes random bits as a function of a key and a counter (Salmon, Moraes, Dror,
// Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011). So a generator has nothing to save,
// and the result does not depend on threads.

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

// Holds a dropout mask as our own kernels read it.
struct DropoutMask {
  at::Tensor elements;  // uint8, 1 for each kept element; undefined: all are kept
  double factor = 1;
};

// The rest of this file makes dropout masks by Philox, and turns masks into factors.

// One Philox call gives eight values of 16 bits. Sixteen consecutive calls fill a group of 128
// elements. Value i of call k is the group's element 16 i + k, so that loops over calls and loops
// over elements can both be vectorized. The counter is {16 * group + call, place, low word of the
// step, high word of the step}, and the key is the seed. `place` is the id of a dropout site
// (nn/dropout.h).
struct DropoutStream {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t place = 0;
};

constexpr std::int64_t kDropoutCalls = 16;
constexpr std::int64_t kDropoutGroup = 8 * kDropoutCalls;

// Sets kept[i] to 1 if the random value of element first + i is at least `dropped`, else to 0.
// `dropped` must be below 65536.
void fill_kept(std::uint8_t* kept, std::int64_t first, std::int64_t count,
               const DropoutStream& stream, std::uint32_t dropped,
               machine::VectorVersion version = machine::vector_version());

// Sets factors[i] = kept[i * step] ? factor : 0.
template <typename Real>
QL_VECTOR_BODY void make_factors_body(const std::uint8_t* kept, std::int64_t step,
                                      std::int64_t count, Real factor, Real* factors) {
  if (step == 1) {
    for (std::int64_t i = 0; i < count; ++i) factors[i] = kept[i] != 0 ? factor : Real(0);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) factors[i] = kept[i * step] != 0 ? factor : Real(0);
}
QL_VECTOR_KERNEL(make_factors)

}  // namespace ql::kernels
