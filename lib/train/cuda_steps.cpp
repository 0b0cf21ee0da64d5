// Captures the steps as CUDA graphs and replays them.

#include "train/cuda_steps.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

namespace ql::train {
// Libraries initialize in the first steps, and CUDA graphs cannot capture that, so these steps run
// uncaptured.
constexpr int kWarmUp = 3;

CudaSteps::CudaSteps(const c10::Device& device, bool graph)
    : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
      records_(graph) {}

void CudaSteps::enqueue(const std::function<void()>& upload, const Parts& parts,
                        const std::function<void()>& between) {
  if (!joined_) {
    at::cuda::CUDAEvent others;
    others.record(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
    others.block(stream_);
    joined_ = true;
  }
  const c10::cuda::CUDAStreamGuard guard(stream_);
  upload();
  uploaded_.record(stream_);
  if (records_ && graphs_.empty() && ++runs_ > kWarmUp) record(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) between();
    if (graphs_.empty()) {
      parts[i]();
    } else {
      graphs_[i].replay();
    }
  }
}

// Captures all parts before any of them runs. After a part has run, enqueue() calls `between`,
// which may start a sum over processes. A thread of NCCL may then give the device work, and work
// from another thread could abort a capture.
void CudaSteps::record(const Parts& parts) {
  stream_.synchronize();
  // The graphs allocate their own memory, so the memory that the first steps left in the cache is
  // freed.
  c10::cuda::CUDACachingAllocator::emptyCache();
  for (const std::function<void()>& part : parts) record(graphs_.emplace_back(), part);
}

void CudaSteps::record(at::cuda::CUDAGraph& graph, const std::function<void()>& part) {
  graph.capture_begin();
  try {
    part();
  } catch (...) {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
      // This exception only repeats the first exception with less information.
    }
    throw;
  }
  graph.capture_end();
}

void CudaSteps::wait_for_upload() { uploaded_.synchronize(); }

void CudaSteps::wait() {
  stream_.synchronize();
  joined_ = false;
}

}  // namespace ql::train
