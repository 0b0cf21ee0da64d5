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

// Returns the bytes that such a chunk of a stream of `tokens` takes on the CPU.
std::int64_t chunk_bytes(const net::Network& network, const net::Geometry& geometry,
                         std::int64_t tokens);

}  // namespace ql::eval
