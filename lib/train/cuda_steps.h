// Runs the steps of a training run on a CUDA device, on a CUDA stream of their own. If the
// constructor's `graph` is true, each part of a step is captured once as a CUDA graph and then
// replayed, with one launch instead of hundreds. This file is built only with a LibTorch for CUDA
// (QL_CUDA).
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>
#include <functional>
#include <vector>

namespace ql::train {

class CudaSteps {
 public:
  CudaSteps(const c10::Device& device, bool graph);
  CudaSteps(CudaSteps&&) = delete;

  // These are the functions of a step. With `graph`, they must enqueue the same operations in every
  // step.
  using Parts = std::vector<std::function<void()>>;

  // First runs `upload`, which enqueues copies from pinned memory and may clear the memory. Then
  // runs or replays all parts, and runs `between` after each part except the last. The operations
  // that `between` enqueues are never captured.
  void enqueue(const std::function<void()>& upload, const Parts& parts,
               const std::function<void()>& between);
  // Waits until the last enqueue() has copied its pinned memory to the device. By then the device
  // has begun the last enqueued step, so the host is at most one step ahead.
  void wait_for_upload();
  // Waits until all work is finished. Work that is then enqueued on the current stream, such as an
  // evaluation, runs before the next step.
  void wait();

 private:
  void record(const Parts& parts);
  void record(at::cuda::CUDAGraph& graph, const std::function<void()>& part);

  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent uploaded_;
  std::deque<at::cuda::CUDAGraph> graphs_;  // one for each part; empty before the capture
  bool records_;
  bool joined_ = false;  // since the last wait(), stream_ was made to wait for the current stream
  int runs_ = 0;
};

}  // namespace ql::train
