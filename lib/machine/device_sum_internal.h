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
  // Throws UsageError when this LibTorch has none for `device`.
  static void require(const c10::Device& device);

  // The processes find each other by it: one makes it, all are given it.
  static std::string make_address();

  // Waits for all processes.
  DeviceSum(const c10::Device& device, int rank, int size, const std::string& address);
  ~DeviceSum();
  DeviceSum(const DeviceSum&) = delete;
  DeviceSum& operator=(const DeviceSum&) = delete;

  // Enqueues on the current stream: a contiguous tensor on the device is added up, in place, over
  // all processes, which have to call this in the same order.
  void enqueue(const at::Tensor& tensor);

  // Until the device has come to the first sum since the last wait_for_end(), thus has done what
  // is this process's own work.
  void wait_for_begin();
  // Returns true when no sum is pending.
  bool has_ended();
  void wait_for_end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ql::machine
