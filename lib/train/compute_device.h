// The device that a training computes on.
#pragma once

#include <c10/core/Device.h>

namespace ql::train {

struct ComputeDevice {
  c10::Device device = c10::DeviceType::CPU;
  bool graph = true;  // records the step once on a GPU and replays it, where the network allows it
};

}  // namespace ql::train
