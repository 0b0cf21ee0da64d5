// Chooses the device on which device-independent tests run: the CPU, or the one that QL_TEST_DEVICE
// names.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

#include "machine/device.h"
#include "machine/process_group.h"

namespace ql::test {

inline c10::Device device(const machine::ProcessGroup& group = machine::ProcessGroup::single()) {
  const char* name = std::getenv("QL_TEST_DEVICE");
  return machine::find_device(name == nullptr ? "cpu" : name, group);
}

// Returns true if this many processes can have a device each.
inline bool has_devices(int count) {
  return device().is_cpu() ||
         c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount() >= count;
}

}  // namespace ql::test
