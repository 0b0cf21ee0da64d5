// Where a training computes.
#pragma once

#include <c10/core/Device.h>

namespace ql::train {

struct ComputeDevice {
  c10::Device device = c10::DeviceType::CPU;
  bool graph = true;  // on a GPU: record the step once and replay it, where the network allows it
};

}  // namespace ql::train
