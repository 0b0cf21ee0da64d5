// doctest together with LibTorch: include this instead of <doctest/doctest.h>. LibTorch's headers
// define glog's CHECK, CHECK_EQ ..., and the last definition silently wins: with glog's a failed
// check ends the program and none is counted.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#undef CHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_LE
#undef CHECK_LT
#undef CHECK_GE
#undef CHECK_GT
#undef INFO
#undef WARN
#undef FAIL

#include <doctest/doctest.h>

#include <cmath>

namespace ql::test {

// Returns the larger number, and NaN if one of them is NaN: std::max() may lose it, so that a
// largest error would look small.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace ql::test
