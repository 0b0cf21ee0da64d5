// Cuts a stream into parts that several processes read at the same time, so that each of them sees
// exactly what a single reader of the complete stream would see.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/data_set.h"
#include "net/geometry.h"

namespace ql::eval {

// Everything is counted in segments of n_s tokens, aligned with the start of the stream. Memories
// are zero before segment 0 and are passed on at segment boundaries. A part that begins inside a
// segment would therefore compute other states.

// Describes a part of a stream. Its reader starts with zero memories, reads the segments
// [read_from, end), and scores the segments [score_from, end). If read_from is above 0, at least
// warm_up_segments() segments are read before the scored ones, so that no score depends on the zero
// memories.
struct StreamPart {
  std::int64_t read_from = 0;
  std::int64_t score_from = 0;
  std::int64_t end = 0;
};

// Returns how many segments the reader of a part has to read before the first segment that it
// scores: as far back as any output of a segment depends on earlier tokens (net/context.h), rounded
// up to complete segments. Returns kWholeStream if the states that are kept depend on all earlier
// states (Geometry::keeps_most_used), because then only a single part is exact.
constexpr std::int64_t kWholeStream = INT64_MAX;
std::int64_t warm_up_segments(const net::Geometry& geometry);

// Shares `segments` (at least 1) among at most `count` parts so that all readers read the same
// number of segments (the last one may read fewer). The parts are in the order of the stream, and
// their scored ranges cover every segment once. The first part needs no warm-up, so it scores
// `warm_up` more segments than the next ones. There are fewer than `count` parts if more would not
// shorten the reading.
std::vector<StreamPart> plan_parts(std::int64_t segments, std::int64_t warm_up, std::int64_t count);

// Returns the stream from `begin`, a segment's start, to `end`. Starts of documents before `begin`
// are left out. They matter only for states before `begin`, and a part begins with empty memories.
TokenSource part_of(const TokenSource& whole, std::int64_t begin, std::int64_t end);

}  // namespace ql::eval
