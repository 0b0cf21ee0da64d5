#include "train/trained_on_device.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "nn/accumulation_internal.h"
#ifdef QL_CUDA
#include "train/cuda_steps.h"
#endif

namespace ql::train {
namespace {

nn::Model initialised(const net::Network& network, const TrainingConfig& config,
                      const at::Device& device) {
  nn::Model model(network, at::TensorOptions(at::kFloat).device(device));
  model.initialise(static_cast<std::uint64_t>(config.seed));
  return model;
}

}  // namespace

TrainedOnDevice::TrainedOnDevice(const net::Network& network, const TrainingConfig& config,
                                 const ComputeDevice& compute, machine::ProcessGroup* group)
    : config_(config),
      group_(group),
      model_(initialised(network, config, compute.device)),
      step_(model_, config, group),
      host_(step_.rows().count, network.lengths.segment, step_.scales(),
            at::TensorOptions().pinned_memory(compute.device.is_cuda())) {
  if (group_ != nullptr) group_->join_device(compute.device);
#ifdef QL_CUDA
  if (compute.device.is_cuda()) {
    cuda_ = std::make_unique<CudaSteps>(compute.device, compute.graph && can_be_recorded(network));
  }
#endif
}

TrainedOnDevice::~TrainedOnDevice() = default;

StepResult TrainedOnDevice::step(Streams& streams, std::int64_t step, double learning_rate) {
  if (group_ != nullptr) group_->await_device();
#ifdef QL_CUDA
  if (cuda_) {
    cuda_->wait_for_upload();  // `host_` is about to be written
  }
#endif
  auto* ids = host_.ids.data_ptr<std::int64_t>();
  if (model_.network().reset_memory_at_documents) {
    // The ages come before read(), which begins to read the next step.
    const std::vector<std::int64_t> ages = streams.document_ages(step);
    std::copy(ages.begin(), ages.end(), ids + step_.rows().count * (streams.segment() + 1));
  }
  streams.read(step, ids);
  nn::StepOptions options;
  options.training = true;
  options.seed = static_cast<std::uint64_t>(config_.seed);
  options.step = static_cast<std::uint64_t>(step);
  options.first_row = step_.rows().first;
  last_step_ = step;
  host_.set_numbers(learning_rate, step,
                    nn::droppath_weights(step_.scales(), model_.network().droppath, options));

  const auto upload = [&] {
    step_.input().ids.copy_(host_.ids, /*non_blocking=*/true);
    step_.input().numbers.copy_(host_.numbers, /*non_blocking=*/true);
    if (streams.starts_epoch(step)) step_.forget();
  };
  // A GPU draws its masks from it. The CPU's is set as well, which lets a test see this.
  nn::seed_generator(model_.options().device(), options);
#ifdef QL_CUDA
  if (cuda_) {
    const auto compute = [&] { step_.compute(step); };
    const auto update = [&] { step_.update(); };
    const auto both = [&] {
      compute();
      update();
    };
    cuda_->enqueue(upload,
                   group_ == nullptr ? CudaSteps::Parts{both} : CudaSteps::Parts{compute, update},
                   [&] { step_.sum(); });
    return {0, 0, 0};
  }
#endif
  upload();
  step_.compute(step);
  step_.sum();
  step_.update();
  return {0, 0, 0};
}

nn::Memory TrainedOnDevice::memory() const {
  return step_.memory().with([this](const at::Tensor& own) {
    return group_ != nullptr ? group_->all_rows(own, config_.batch) : own;
  });
}

void TrainedOnDevice::set_memory(const nn::Memory& memory) {
  const at::NoGradGuard no_gradient;
  const machine::RowRange& rows = step_.rows();
  const std::vector<nn::NamedTensor> own = step_.memory().named(), all = memory.named();
  for (std::size_t i = 0; i < own.size(); ++i) {
    // The memory is copied in place, because a recorded step reads it from there.
    own[i].tensor.copy_(all[i].tensor.narrow(0, rows.first, rows.count));
  }
}

StepResult TrainedOnDevice::finish() {
  if (group_ != nullptr) group_->await_device();
#ifdef QL_CUDA
  if (cuda_) cuda_->wait();
#endif
  const StepReport report = step_.take_report();
  if (report.failed_step >= 0) {
    throw Diverged(Divergence{report.failed_step, report.failed_loss, report.failed_norm});
  }
  if (report.steps > 0) {
    const auto count = static_cast<double>(report.steps);
    const Divergence mean{last_step_, report.loss / count, report.gradient_norm / count,
                          largest_loss()};
    if (!mean.reason().empty()) throw Diverged(mean);
  }
  return {report.loss, report.gradient_norm, report.steps};
}

}  // namespace ql::train
