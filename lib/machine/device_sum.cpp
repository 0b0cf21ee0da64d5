#include "machine/device_sum_internal.h"

#include "base/error.h"

#ifdef QL_NCCL
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/nccl.h>

#include <cstdint>
#include <cstring>
#include <vector>
#endif

namespace ql::machine {

#ifdef QL_NCCL

namespace nccl = torch::cuda::nccl;

namespace {

nccl::ncclComm_t connect(const c10::Device& device, int rank, int size,
                         const std::string& address) {
  nccl::ncclUniqueId id = {};
  TORCH_CHECK(address.size() == sizeof id.internal, "an address of NCCL has another length");
  std::memcpy(id.internal, address.data(), address.size());
  const c10::cuda::CUDAGuard guard(device);
  return nccl::comm_init_rank(size, id, rank);
}

}  // namespace

struct DeviceSum::State {
  c10::Device device;
  // LibTorch leaves it to the end of the process, because its own end waits for other processes.
  nccl::ncclComm_t communicator;
  at::cuda::CUDAEvent begins, ends;
  bool under_way = false;  // a sum was enqueued since the last wait_for_end()
};

void DeviceSum::require(const c10::Device&) {}

std::string DeviceSum::make_address() {
  nccl::ncclUniqueId id = {};
  nccl::get_unique_id(id);
  return {id.internal, sizeof id.internal};
}

DeviceSum::DeviceSum(const c10::Device& device, int rank, int size, const std::string& address)
    : state_(std::make_unique<State>(State{device, connect(device, rank, size, address), {}, {}})) {
}

void DeviceSum::enqueue(const at::Tensor& tensor) {
  const c10::cuda::CUDAGuard guard(state_->device);
  const auto stream = c10::cuda::getCurrentCUDAStream(state_->device.index());
  if (!state_->under_way) {
    state_->begins.record(stream);
    state_->under_way = true;
  }
  std::vector<at::Tensor> in_place = {tensor};
  nccl::all_reduce(in_place, in_place, static_cast<std::int32_t>(nccl::ncclRedOp::Sum), {},
                   {state_->communicator});
  state_->ends.record(stream);
}

void DeviceSum::wait_for_begin() { state_->begins.synchronize(); }

bool DeviceSum::has_ended() {
  state_->under_way = state_->under_way && !state_->ends.query();
  return !state_->under_way;
}

void DeviceSum::wait_for_end() {
  state_->ends.synchronize();
  state_->under_way = false;
}

#else

struct DeviceSum::State {};

void DeviceSum::require(const c10::Device& device) {
  throw UsageError("--device",
                   fmt::format("{}: this program was built with a LibTorch without NCCL, by which "
                               "several processes train on GPUs",
                               device.str()),
                   "use one process, or build with a LibTorch for CUDA that has NCCL");
}

std::string DeviceSum::make_address() { return ""; }
DeviceSum::DeviceSum(const c10::Device& device, int, int, const std::string&) { require(device); }
void DeviceSum::enqueue(const at::Tensor&) {}
void DeviceSum::wait_for_begin() {}
bool DeviceSum::has_ended() { return true; }
void DeviceSum::wait_for_end() {}

#endif

DeviceSum::~DeviceSum() = default;

}  // namespace ql::machine
