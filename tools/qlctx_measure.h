// Runs the method "measured": another program finds the context lengths of running weights.
#pragma once

#include <cstdint>
#include <vector>

#include "qlctx_request.h"

namespace ql::ctx {

// For every lengths of the request, returns the context length at each position of a segment, as
// nn/measure_context.h finds them in the checkpoint's weights, or in random ones. Runs
// qlctx-measure, which has to be beside qlctx or where it is installed. Its messages go to standard
// error. Throws Error when it is missing or fails, Interrupted when it was stopped.
std::vector<std::vector<std::int64_t>> measure(const Request& request);

}  // namespace ql::ctx
