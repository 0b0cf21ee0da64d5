// The device that tests of what runs on any device run on: the CPU, or what QL_TEST_DEVICE names.
#pragma once

#include <cstdlib>

#include "nn/device.h"

namespace ql::test {

inline c10::Device device() {
  const char* name = std::getenv("QL_TEST_DEVICE");
  return nn::find_device(name == nullptr ? "cpu" : name);
}

}  // namespace ql::test
