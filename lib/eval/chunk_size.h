// Chooses how many segments of a stream go through a layer at once.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::eval {

// Returns the default number of segments in a chunk (the segments that go through a layer at once),
// at least 1. On the CPU a chunk fills an eighth of the available memory, but at most 128 MiB. The
// available memory is first rounded down to a power of two. Longer chunks are slower, because their
// tensors leave the caches between two operations. On a GPU a chunk fills 1 GiB, because short
// chunks leave the GPU idle.
std::int64_t automatic_segments(const net::Network& network, const net::Geometry& geometry,
                                const c10::Device& device);

}  // namespace ql::eval
