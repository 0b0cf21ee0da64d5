// qlctx plan: which geometries reach a context of so many tokens, the cheapest first.
#pragma once

#include "base/options.h"

namespace ql::ctx {

// Prints the plans. Throws as make_request does, Error when nothing reaches so far.
void plan(const Options& options);

}  // namespace ql::ctx
