// Chooses how much of a stream goes through the layers at once.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::eval {

// Returns the bytes that a segment needs in float32 while it is in the layer that needs most.
double bytes_per_segment(const net::Network& network, const net::Geometry& geometry);

// Returns the segments of a chunk when nothing else is asked for: as many as fill 128 MiB, or an
// eighth of the available memory if that is less; at least 1. Longer chunks are slower, because
// their tensors leave the caches between two operations. On a GPU a chunk fills 1 GiB, because
// short chunks leave it idle.
std::int64_t automatic_segments(const net::Network& network, const net::Geometry& geometry,
                                const c10::Device& device);

// Returns the bytes that such a chunk of a stream of `tokens` holds at once on the CPU
// (nn/consecutive_step.cpp). They are fewer than segments by segments, because consecutive segments
// share the keys and values of their memories.
std::int64_t chunk_bytes(const net::Network& network, const net::Geometry& geometry,
                         std::int64_t tokens, int threads);

// Returns the bytes that columns hold which are read side by side, step by step, on the CPU
// (eval/evaluate_columns.cpp). Each of them keeps `cursor_bytes` of the data.
std::int64_t columns_bytes(const net::Network& network, const net::Geometry& geometry,
                           std::int64_t columns, int threads, std::int64_t cursor_bytes);

// Returns the most columns up to `columns` that need no more than `available` bytes, or 1.
std::int64_t columns_that_fit(const net::Network& network, const net::Geometry& geometry,
                              std::int64_t columns, int threads, std::int64_t cursor_bytes,
                              std::int64_t available);

// Returns how many groups the columns are divided into, which are pieces of work on the CPU.
std::int64_t groups_of_columns(const net::Geometry& geometry, std::int64_t columns);

}  // namespace ql::eval
