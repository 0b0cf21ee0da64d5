// Runs the steps of a training on a CUDA device, on a separate stream. If the network allows it, a
// step is recorded once as a CUDA graph and replayed, which takes one launch instead of hundreds.
// This is built only with a LibTorch for CUDA (QL_CUDA).
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

  // These are the functions whose operations a step enqueues, the same every time.
  using Parts = std::vector<std::function<void()>>;

  // Runs `upload`, which enqueues copies from pinned memory, then all parts, or replays them. Runs
  // `between` after each part except the last; the operations that it enqueues are never recorded.
  void enqueue(const std::function<void()>& upload, const Parts& parts,
               const std::function<void()>& between);
  // Waits until the copies of the last enqueue() have read their memory. By then the device has
  // begun the last step that was enqueued, so the host stays one step ahead.
  void wait_for_upload();
  // Waits until all work is finished. Work that other streams enqueue after this call, such as an
  // evaluation, runs before the next step.
  void wait();

 private:
  void record(const Parts& parts);
  void record(at::cuda::CUDAGraph& graph, const std::function<void()>& part);

  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent uploaded_;
  std::deque<at::cuda::CUDAGraph> graphs_;  // of the parts, once they are recorded
  bool records_;
  bool joined_ = false;  // after the last wait(), stream_ was made to wait for the current stream
  int runs_ = 0;
};

}  // namespace ql::train
