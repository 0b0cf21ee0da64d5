// Divides passes and sums over all weights into blocks, which are the same for any number of
// threads.
#pragma once

#include <cstdint>

namespace ql::train {

// Elements of a block.
inline constexpr std::int64_t kBlock = 16384;

inline std::int64_t block_count(std::int64_t elements) { return (elements + kBlock - 1) / kBlock; }

}  // namespace ql::train
