// Computes sums over processes of tensors on GPUs, one GPU for each process, by the NCCL that is
// part of LibTorch. Only process_group.cpp uses it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>

namespace ql::machine {

class DeviceSum {
 public:
  virtual ~DeviceSum() = default;

  // Enqueues a sum on the current stream. It adds up a contiguous tensor on the device, in place,
  // over all processes, which have to call this in the same order.
  virtual void enqueue(const at::Tensor& tensor) = 0;

  // Waits until the device has reached the first sum that was enqueued since has_ended() was true.
  // Then it has finished the work that depends on this process alone.
  virtual void wait_for_begin() = 0;
  // Returns true when no sum is pending.
  virtual bool has_ended() = 0;
};

// Returns the text by which the processes find each other; the first process makes it. Throws
// UsageError, in all processes, when this LibTorch has no NCCL.
std::string device_sum_address(const c10::Device& device, bool is_first);

// Waits for all processes.
std::shared_ptr<DeviceSum> connect_device(const c10::Device& device, int rank, int size,
                                          const std::string& address);

}  // namespace ql::machine
