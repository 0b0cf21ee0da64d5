// Divides a stream into chunks, which go through the layers one after the other, and into columns,
// which are read in parallel.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::eval {

// Chooses how much of a stream goes through the layers at once.

// Returns the bytes of float32 that a segment needs in the layer that needs most.
double bytes_per_segment(const net::Network& network, const net::Geometry& geometry);

// Returns the default number of segments in a chunk: as many as fill 128 MiB, or an eighth of the
// available memory if that is less; at least 1. Longer chunks are slower, because their tensors
// leave the caches between two operations. On a GPU a chunk fills 1 GiB, because short chunks leave
// it idle.
std::int64_t automatic_segments(const net::Network& network, const net::Geometry& geometry,
                                const c10::Device& device);

// Returns the bytes that such a chunk of a stream of `tokens` tokens holds at once on the CPU
// (nn/step.cpp). They are fewer than the sum over its segments, because consecutive segments share
// the keys and values of their memories.
std::int64_t chunk_bytes(const net::Network& network, const net::Geometry& geometry,
                         std::int64_t tokens, int threads);

// Returns the bytes that `columns` columns hold on the CPU when they are read in parallel, step by
// step (eval/stream_columns.cpp). Each of them keeps `cursor_bytes` of the data.
std::int64_t columns_bytes(const net::Network& network, const net::Geometry& geometry,
                           std::int64_t columns, int threads, std::int64_t cursor_bytes);

// Returns the largest number of columns up to `columns` that needs at most `available` bytes, or 1.
std::int64_t columns_that_fit(const net::Network& network, const net::Geometry& geometry,
                              std::int64_t columns, int threads, std::int64_t cursor_bytes,
                              std::int64_t available);

// Cuts a stream into columns that are read in parallel, and evaluates them.

// Cuts a stream into columns that are read in parallel, so that every column sees exactly what a
// single reader of the complete stream would see. This part has only whole numbers, no tensors.
//
// Everything is counted in segments of n_s tokens, aligned with the start of the stream: memories
// are zero before segment 0 and are passed on at segment boundaries, so a column that begins
// anywhere else would be a different computation.

// Reads segments [read_from, end) and scores [score_from, end). Either read_from is 0, where the
// single reader also starts with zero memories, or the column reads at least `warm_up` segments
// before it scores, after which nothing depends on the memories it started with.
struct Column {
  std::int64_t read_from = 0;
  std::int64_t score_from = 0;
  std::int64_t end = 0;
};

// Returns how many segments a column has to read before the first one that it scores: as far as any
// output of a segment depends on tokens before it (net/context.h), in complete segments. It is
// kWholeStream if the states that are kept depend on all earlier states
// (Geometry::keeps_most_used): then only one column is exact.
constexpr std::int64_t kWholeStream = INT64_MAX;
std::int64_t warm_up_segments(const net::Geometry& geometry);

// Shares `segments` (at least 1) among at most `batch` columns so that all read the same number of
// segments (the last one may end earlier). The columns are in the order of the stream, and their
// scored ranges cover every segment once. The first column needs no warm-up and scores more than
// the others. There are fewer than `batch` columns if more would not shorten the reading.
std::vector<Column> plan_columns(std::int64_t segments, std::int64_t warm_up, std::int64_t batch);

}  // namespace ql::eval
