// What every layer norm of the networks has in common.
#pragma once

namespace ql::kernels {

// Added to the variance: the public code's default; the golden networks were computed with it.
constexpr double kLayerNormEpsilon = 1e-5;

}  // namespace ql::kernels
