#include "train/cuda_steps.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

namespace ql::train {
namespace {

// The first steps run as they are: libraries set themselves up in them, which cannot be recorded.
constexpr int kWarmUp = 3;

}  // namespace

CudaSteps::CudaSteps(const c10::Device& device, bool graph)
    : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
      records_(graph) {}

void CudaSteps::enqueue(const std::function<void()>& upload, const std::function<void()>& step) {
  if (!joined_) {
    at::cuda::CUDAEvent others;
    others.record(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
    others.block(stream_);
    joined_ = true;
  }
  const c10::cuda::CUDAStreamGuard guard(stream_);
  upload();
  uploaded_.record(stream_);
  if (!records_ || runs_ < kWarmUp) {
    step();
    ++runs_;
    return;
  }
  if (!recorded_) {
    record(step);
  }
  graph_.replay();
}

void CudaSteps::record(const std::function<void()>& step) {
  stream_.synchronize();
  // The graph gets memory of its own; what the first steps used is free now.
  c10::cuda::CUDACachingAllocator::emptyCache();
  graph_.capture_begin();
  try {
    step();
  } catch (...) {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
      // It says again what the first exception says better.
    }
    throw;
  }
  graph_.capture_end();
  recorded_ = true;
}

void CudaSteps::wait_for_upload() { uploaded_.synchronize(); }

void CudaSteps::wait() {
  stream_.synchronize();
  joined_ = false;
}

}  // namespace ql::train
