// The compression between two scales (paper, section 2.3: f_c).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "net/network.h"

namespace ql::nn {

// Pools `window` [batch, length, d_model] with width and stride `rate`, counted from its end, and
// returns the last `count` pooled states [batch, count, d_model]; count * rate <= length.
at::Tensor compress(const at::Tensor& window, net::Pool pool, std::int64_t rate,
                    std::int64_t count);

}  // namespace ql::nn
