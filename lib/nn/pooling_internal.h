// The compression between two scales (paper, section 2.3: f_c).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "net/network.h"

namespace ql::nn {

// Pools `states` [batch, length, d_model] with width and stride `rate`, of which the length is a
// multiple. Returns [batch, length / rate, d_model].
at::Tensor compress(const at::Tensor& states, net::Pool pool, std::int64_t rate);

}  // namespace ql::nn
