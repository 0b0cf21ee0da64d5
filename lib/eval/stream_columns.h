// Divides a stream into chunks, which are read one after the other, or into columns, which are read
// in parallel.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::eval {

// Chooses how much of a stream goes through the layers at once.

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

// Returns the bytes that the CPU holds at once when it reads `columns` columns (parts of a stream)
// in parallel. The result includes `cursor_bytes` for each column, for reading the data.
std::int64_t columns_bytes(const net::Network& network, const net::Geometry& geometry,
                           std::int64_t columns, int threads, std::int64_t cursor_bytes);

// Returns the largest number of columns up to `columns` that needs at most `available` bytes, but
// at least 1.
std::int64_t columns_that_fit(const net::Network& network, const net::Geometry& geometry,
                              std::int64_t columns, int threads, std::int64_t cursor_bytes,
                              std::int64_t available);

// Cuts a stream into columns that are read in parallel, so that every column sees exactly what a
// single reader of the complete stream would see. This part needs only integers, not tensors.
//
// Everything is counted in segments of n_s tokens, aligned with the start of the stream. Memories
// are zero before segment 0 and are passed on at segment boundaries. A column that begins inside a
// segment would therefore compute other states.

// Describes a column, a part of the stream that is read in parallel with others. A column starts
// with zero memories, reads the segments [read_from, end), and scores the segments
// [score_from, end). If read_from is above 0, at least warm_up_segments() segments are read before
// the scored ones, so that no score depends on the zero memories.
struct Column {
  std::int64_t read_from = 0;
  std::int64_t score_from = 0;
  std::int64_t end = 0;
};

// Returns how many segments a column has to read before the first segment that it scores: as far
// back as any output of a segment depends on earlier tokens (net/context.h), rounded up to complete
// segments. Returns kWholeStream if the states that are kept depend on all earlier states
// (Geometry::keeps_most_used), because then only a single column is exact.
constexpr std::int64_t kWholeStream = INT64_MAX;
std::int64_t warm_up_segments(const net::Geometry& geometry);

// Shares `segments` (at least 1) among at most `batch` columns so that all columns read the same
// number of segments (the last column may read fewer). The columns are in the order of the stream,
// and their scored ranges cover every segment once. The first column needs no warm-up, so it scores
// `warm_up` more segments than the next ones. There are fewer than `batch` columns if more would
// not shorten the reading.
std::vector<Column> plan_columns(std::int64_t segments, std::int64_t warm_up, std::int64_t batch);

}  // namespace ql::eval
