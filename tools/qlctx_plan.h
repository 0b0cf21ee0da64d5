// Runs qlctx plan, which finds the geometries that reach a context of so many tokens, the cheapest
// first.
#pragma once

#include "base/options.h"

namespace ql::ctx {

// Prints the plans. Throws as make_request does, and Error when nothing reaches so far.
void plan(const Options& options);

}  // namespace ql::ctx
