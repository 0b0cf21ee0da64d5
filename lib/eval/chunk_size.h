// Chooses how many segments of a stream go through a layer at once, and estimates the memory that
// they take.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::eval {

// Returns the bytes (in float32) that one segment needs in the layer that needs most.
double bytes_per_segment(const net::Network& network, const net::Geometry& geometry);

// Returns the default number of segments in a chunk (the segments that go through a layer at once),
// at least 1. On the CPU a chunk fills an eighth of the available memory, but at most 128 MiB. The
// available memory is first rounded down to a power of two. Longer chunks are slower, because their
// tensors leave the caches between two operations. On a GPU a chunk fills 1 GiB, because short
// chunks leave the GPU idle.
std::int64_t automatic_segments(const net::Network& network, const net::Geometry& geometry,
                                const c10::Device& device);

// Returns the bytes that the CPU holds at once when a stream of `tokens` tokens is read layer by
// layer (nn/step.cpp). A layer reads automatic_segments() segments at once, or all segments of a
// shorter stream. Together the segments take fewer bytes than separately, because consecutive
// segments share the keys and values of their memories.
std::int64_t chunk_bytes(const net::Network& network, const net::Geometry& geometry,
                         std::int64_t tokens, int threads);

}  // namespace ql::eval
