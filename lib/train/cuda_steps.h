// The steps of a training on a CUDA device: on a stream of their own, and where the network allows
// it recorded once as a CUDA graph and replayed, which takes one launch instead of hundreds. Only
// built with a LibTorch for CUDA (QL_CUDA).
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <functional>

namespace ql::train {

class CudaSteps {
 public:
  CudaSteps(const c10::Device& device, bool graph);
  CudaSteps(const CudaSteps&) = delete;
  CudaSteps& operator=(const CudaSteps&) = delete;

  // Runs both functions, or replays `step`: it has to enqueue the same operations every time.
  // `upload` enqueues copies from pinned memory.
  void enqueue(const std::function<void()>& upload, const std::function<void()>& step);
  // Until the copies of the last enqueue() have read their memory; thus until the device has begun
  // the last step that was enqueued, which keeps the host one step ahead.
  void wait_for_upload();
  // Until nothing is left to do. What other streams enqueue after it, such as an evaluation, comes
  // before the next step.
  void wait();

 private:
  void record(const std::function<void()>& step);

  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent uploaded_;
  at::cuda::CUDAGraph graph_;
  bool records_, recorded_ = false;
  bool joined_ = false;  // the stream has waited for the others since the last wait()
  int runs_ = 0;
};

}  // namespace ql::train
