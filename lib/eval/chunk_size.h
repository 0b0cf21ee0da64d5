// Chooses how many segments of a stream go through a layer at once.
#pragma once

#include <cstdint>

#include "nn/model_at_lengths.h"

namespace ql::eval {

// Returns the number of segments in a chunk (the segments that go through a layer at once), at
// least 1: as many as have the given number of tokens, or if that is 0 the default. On the CPU a
// default chunk fills an eighth of the available memory, but at most 128 MiB. The available memory
// is first rounded down to a power of two. Longer chunks are slower, because their tensors leave
// the caches between two operations. On a GPU a chunk fills 1 GiB, because short chunks leave the
// GPU idle.
std::int64_t segments_of_chunk(const nn::ModelAtLengths& model, std::int64_t tokens = 0);

}  // namespace ql::eval
