// Cuts a stream into columns that are read side by side, so that every column sees exactly what a
// single reader of the whole stream would see. There are only whole numbers here, no tensors.
//
// Everything is counted in segments of n_s tokens, aligned with the start of the stream: memories
// are zero before segment 0 and are passed on at segment boundaries, so a column that reads from
// anywhere else would be another network.
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::eval {

// Reads segments [read_from, end) and scores [score_from, end). Either read_from is 0, where the
// single reader starts with zero memories as well, or the column reads at least `warm_up` segments
// before it scores, by which time nothing depends on the memories it started with.
struct Column {
  std::int64_t read_from = 0;
  std::int64_t score_from = 0;
  std::int64_t end = 0;
};

struct ColumnPlan {
  std::int64_t steps = 0;       // segments that the longest column reads
  std::vector<Column> columns;  // in stream order; their scored ranges cover every segment once
};

// Returns how many segments a column has to read before its first scored one: as far as any output
// of a segment depends on tokens before it (net/dependency.h), in whole segments. It is
// kWholeStream where the states that are kept depend on all before them
// (Geometry::keeps_most_used): then only one column is exact.
constexpr std::int64_t kWholeStream = INT64_MAX;
std::int64_t warm_up_segments(const net::Geometry& geometry);

// Shares `segments` (at least 1) among at most `batch` columns such that all read equally long
// (the last one may end earlier). The first column needs no warm-up and scores more than the
// others. Fewer columns than asked for come back where more would not shorten the reading.
ColumnPlan plan_columns(std::int64_t segments, std::int64_t warm_up, std::int64_t batch);

}  // namespace ql::eval
