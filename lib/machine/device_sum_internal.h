// Sums over processes of tensors on GPUs, a GPU a process, by the NCCL that is part of LibTorch.
// Used by process_group.cpp only.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>

namespace ql::machine {

class DeviceSum {
 public:
  virtual ~DeviceSum() = default;

  // Enqueues on the current stream: a contiguous tensor on the device is added up, in place, over
  // all processes, which have to call this in the same order.
  virtual void enqueue(const at::Tensor& tensor) = 0;

  // Until the device has come to the first sum since has_ended() was true, thus has done what is
  // this process's own work.
  virtual void wait_for_begin() = 0;
  // Returns true when no sum is pending.
  virtual bool has_ended() = 0;
};

// The processes find each other by the first one's text. Throws UsageError, in all of them, when
// this LibTorch has no NCCL.
std::string device_sum_address(const c10::Device& device, bool is_first);

// Waits for all processes.
std::shared_ptr<DeviceSum> connect_device(const c10::Device& device, int rank, int size,
                                          const std::string& address);

}  // namespace ql::machine
