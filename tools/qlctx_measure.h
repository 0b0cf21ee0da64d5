// Runs qlctx-measure, which finds the context lengths of running weights by their gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "qlctx_report.h"

namespace ql::ctx {

// Returns, for each lengths of the request, the context length at each position of a segment, as
// nn/measure.h finds them in the checkpoint's weights or in random ones. Runs qlctx-measure, which
// must be installed, or in the same folder as qlctx. Its messages go to standard error. Throws
// Error when it is missing or fails, Interrupted when it was stopped.
std::vector<std::vector<std::int64_t>> measure(const Request& request);

}  // namespace ql::ctx
