// Holds the choice of a dropout.
#pragma once

#include <ATen/core/Tensor.h>

namespace ql::kernels {

// A dropout as our own kernels read it.
struct KeptElements {
  at::Tensor elements;  // uint8, 1 for each that is kept; undefined: all are
  double factor = 1;
};

}  // namespace ql::kernels
