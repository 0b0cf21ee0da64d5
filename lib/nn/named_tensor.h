// A tensor and the name it has in files.
#pragma once

#include <ATen/ATen.h>

#include <string>

namespace ql::nn {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace ql::nn
