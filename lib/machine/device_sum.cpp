// Computes sums on GPUs by NCCL, and refuses to where LibTorch has none.
#include "base/error.h"
#include "machine/device_sum_internal.h"

#ifdef QL_NCCL
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/zeros.h>
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

class NcclSum final : public DeviceSum {
 public:
  NcclSum(const c10::Device& device, int rank, int size, const std::string& address)
      : device_(device) {
    nccl::ncclUniqueId id = {};
    TORCH_CHECK(address.size() == sizeof id.internal, "an address of NCCL has another length");
    std::memcpy(id.internal, address.data(), address.size());
    const c10::cuda::CUDAGuard guard(device);
    communicator_ = nccl::comm_init_rank(size, id, rank);
    // The first sum connects the GPUs.
    enqueue(at::zeros({1}, at::TensorOptions(at::kFloat).device(device)));
    ends_.synchronize();
    under_way_ = false;
  }

  void enqueue(const at::Tensor& tensor) override {
    const c10::cuda::CUDAGuard guard(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    if (!under_way_) {
      begins_.record(stream);
      under_way_ = true;
    }
    std::vector<at::Tensor> in_place = {tensor};
    nccl::all_reduce(in_place, in_place, static_cast<std::int32_t>(nccl::ncclRedOp::Sum), {},
                     {communicator_});
    ends_.record(stream);
  }

  void wait_for_begin() override { begins_.synchronize(); }

  bool has_ended() override {
    under_way_ = under_way_ && !ends_.query();
    return !under_way_;
  }

 private:
  c10::Device device_;
  // The communicator is destroyed only when the process ends, because its destruction waits for the
  // other processes.
  nccl::ncclComm_t communicator_ = nullptr;
  at::cuda::CUDAEvent begins_, ends_;
  bool under_way_ = false;  // a sum was enqueued since has_ended() was true
};

}  // namespace

std::string device_sum_address(const c10::Device&, bool is_first) {
  nccl::ncclUniqueId id = {};
  if (is_first) nccl::get_unique_id(id);
  return {id.internal, sizeof id.internal};
}

std::shared_ptr<DeviceSum> connect_device(const c10::Device& device, int rank, int size,
                                          const std::string& address) {
  return std::make_shared<NcclSum>(device, rank, size, address);
}

#else

std::string device_sum_address(const c10::Device& device, bool) {
  throw UsageError("--device",
                   fmt::format("{}: this program was built with a LibTorch without NCCL, by which "
                               "several processes train on GPUs",
                               device.str()),
                   "use one process, or build with a LibTorch for CUDA that has NCCL");
}

std::shared_ptr<DeviceSum> connect_device(const c10::Device&, int, int, const std::string&) {
  return nullptr;
}

#endif

}  // namespace ql::machine
