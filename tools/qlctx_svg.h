// Draws a network in time, after the paper's figure 5: the states of every place, in the segment
// and in memories, and the cone of those that one output state depends on.
#pragma once

#include <cstdint>
#include <string>

#include "qlctx_report.h"

namespace ql::ctx {

// Returns a standalone SVG 1.1 file. Tokens run from left to right, every row is a place of the
// network, and a state is as wide as the tokens it stands for. `position` is 0 to n_s - 1. Every
// state of a segment is one element of class "segment", of a memory "memory", of a compressed
// memory "compressed"; those of the cone are of class "in", too. Throws Error for a network too
// large to be seen.
std::string draw_svg(const Row& row, std::int64_t position);

}  // namespace ql::ctx
