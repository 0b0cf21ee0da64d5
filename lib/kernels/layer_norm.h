// The constant that all layer norms of the networks share.
#pragma once

namespace ql::kernels {

// Is added to the variance. It is the public code's default, with which the golden networks were
// computed.
constexpr double kLayerNormEpsilon = 1e-5;

}  // namespace ql::kernels
