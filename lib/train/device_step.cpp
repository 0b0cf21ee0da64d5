// Implements Adam and a training step on a device, and the trainer that runs them.

#include "train/device_step.h"

#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include "net/cost.h"
#include "nn/compression.h"

// ATen's fused kernel reads and writes weights and moments only once. From LibTorch 2.3 on, it
// accepts a learning rate on the device.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define QL_FUSED_ADAM
#endif

#ifdef QL_CUDA
#include "train/cuda_steps.h"
#endif

namespace ql::train {

// Parameters begin at multiples of this many elements, because matrix products on a GPU need
// aligned rows to be fast.
constexpr std::int64_t kAlignment = 64;
// On a GPU, a concatenation spends as much time on each tensor as on its longest one. So gradients
// of at least this many elements are copied separately.
constexpr std::int64_t kLargeParameter = std::int64_t{1} << 20;

DeviceAdam::DeviceAdam(const std::vector<nn::NamedTensor>& parameters, const AdamOptions& options)
    : options_(options) {
  if (parameters.empty()) throw std::invalid_argument("DeviceAdam: no parameters");
  const at::TensorOptions shared = parameters.front().tensor.options().requires_grad(false);
  std::int64_t end = 0, longest = kAlignment;
  for (const nn::NamedTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    if (!tensor.is_floating_point() || tensor.scalar_type() != shared.dtype().toScalarType() ||
        tensor.device() != shared.device()) {
      throw std::invalid_argument("DeviceAdam: " + parameter.name +
                                  " is of another type or on another device than the others");
    }
    const std::int64_t size = tensor.numel();
    const std::int64_t padding = (kAlignment - size % kAlignment) % kAlignment;
    parts_.push_back({parameter, end, size, padding});
    end += size + padding;
    longest = std::max(longest, size);
  }
  weights_ = at::zeros({end}, shared);
  first_ = at::zeros({end}, shared);
  second_ = at::zeros({end}, shared);
  zeros_ = at::zeros({longest}, shared);
  if (options_.weight_decay > 0) {
    decayed_ = at::zeros({end}, shared);
    for (const Part& part : parts_) {
      if (decays(part.parameter.name, options_.decay_on)) part_of(decayed_, part).fill_(1);
    }
  }
  for (const auto& [moment, all] :
       {std::pair("first_moment.", first_), std::pair("second_moment.", second_)}) {
    for (const Part& part : parts_) {
      moments_.push_back({moment + part.parameter.name, part_of(all, part)});
    }
  }
  steps_ = at::zeros({}, shared.dtype(at::kDouble));
  // The fused kernel may compute in float32, in which no beta may round to 1.
  const auto below_one = [](double beta) { return static_cast<float>(beta) < 1; };
  fused_ = weights_.is_cuda() && weights_.scalar_type() == at::kFloat && !decayed_.defined() &&
           below_one(options_.beta1) && below_one(options_.beta2);
  const at::NoGradGuard no_gradient;
  for (Part& part : parts_) {
    const at::Tensor place = part_of(weights_, part);
    place.copy_(part.parameter.tensor);
    part.parameter.tensor.set_data(place);
  }
}

at::Tensor DeviceAdam::part_of(const at::Tensor& all, const Part& part) const {
  return all.narrow(0, part.begin, part.size).view(part.parameter.tensor.sizes());
}

at::Tensor DeviceAdam::take_gradient() {
  const at::NoGradGuard no_gradient;
  at::Tensor all = at::empty_like(weights_);
  std::vector<at::Tensor> run;  // adjacent small tensors, the first of them at offset `begin`
  std::int64_t begin = 0;
  const auto write_run = [&](std::int64_t end) {
    if (run.empty()) return;
    at::Tensor place = all.narrow(0, begin, end - begin);
    at::cat_out(place, run);
    run.clear();
  };
  for (Part& part : parts_) {
    at::Tensor& gradient = part.parameter.tensor.mutable_grad();
    const at::Tensor values =
        gradient.defined() ? gradient.reshape({part.size}) : zeros_.narrow(0, 0, part.size);
    gradient.reset();
    if (part.size >= kLargeParameter) {
      write_run(part.begin);
      begin = part.begin + part.size;
      all.narrow(0, part.begin, part.size).copy_(values);
    } else {
      run.push_back(values);
    }
    if (part.padding > 0) run.push_back(zeros_.narrow(0, 0, part.padding));
  }
  write_run(all.size(0));
  return all;
}

void DeviceAdam::step(const at::Tensor& gradient, const at::Tensor& gradient_scale,
                      const at::Tensor& learning_rate, const at::Tensor& applies) {
  const at::NoGradGuard no_gradient;
  const at::TensorOptions options = first_.options();
#ifdef QL_FUSED_ADAM
  if (fused_) {
    at::_fused_adam_(weights_, gradient, first_, second_, {}, (steps_ + 1).to(at::kFloat),
                     learning_rate.to(at::kFloat), options_.beta1, options_.beta2,
                     /*weight_decay=*/0, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                     gradient_scale.reciprocal().to(at::kFloat),
                     applies.logical_not().to(at::kFloat));
    steps_.add_(applies);
    return;
  }
#endif
  // 0 * NaN is NaN, so a skipped update needs a gradient of zeros. A factor of 0 is not enough.
  const at::Tensor zero = at::zeros({}, options);
  const at::Tensor slope = at::where(applies, gradient * gradient_scale.to(options), zero);
  // Computes moment - (1 - beta) * moment, as in train/adam.cpp: beta itself may be 1 in float32.
  const auto decay = [&](at::Tensor& moment, double beta) -> at::Tensor& {
    return moment.addcmul_(moment, at::where(applies, at::full({}, 1 - beta, options), zero), -1);
  };
  decay(first_, options_.beta1).add_(slope, 1 - options_.beta1);
  decay(second_, options_.beta2).addcmul_(slope, slope, 1 - options_.beta2);
  const at::Tensor steps = steps_ + 1;
  const auto correction = [&](double beta) { return 1 - at::pow(beta, steps); };
  const at::Tensor divisor =
      second_.sqrt().div_(correction(options_.beta2).sqrt().to(options)).add_(options_.epsilon);
  const at::Tensor size =
      at::where(applies, (learning_rate / correction(options_.beta1)).to(options), zero);
  at::Tensor change = (first_ * size).div_(divisor);
  if (decayed_.defined()) {
    const at::Tensor share =
        at::where(applies, (learning_rate * options_.weight_decay).to(options), zero);
    change.add_((weights_ * decayed_).mul_(share));
  }
  weights_.sub_(change);
  steps_.add_(applies);
}

std::int64_t DeviceAdam::steps() const { return static_cast<std::int64_t>(steps_.item<double>()); }

void DeviceAdam::set_steps(std::int64_t steps) { steps_.fill_(static_cast<double>(steps)); }

StepInput::StepInput(std::int64_t batch, std::int64_t segment, std::int64_t scales,
                     const at::TensorOptions& options)
    : ids(at::zeros({batch * (segment + 1) + batch}, options.dtype(at::kLong))),
      numbers(at::zeros({2 + scales}, options.dtype(at::kDouble))) {}

void StepInput::set_numbers(double learning_rate, std::int64_t step,
                            const std::vector<double>& weights) {
  auto* out = numbers.data_ptr<double>();
  out[0] = learning_rate;
  out[1] = static_cast<double>(step);
  std::copy(weights.begin(), weights.end(), out + 2);
}

DeviceStep::DeviceStep(nn::Model& model, const TrainingConfig& config, machine::ProcessGroup* group,
                       std::optional<bool> scales_loss)
    : model_(model),
      config_(config),
      group_(group),
      rows_(machine::own_rows(group, config.batch)),
      at_lengths_(model, model.network().lengths),
      adam_(model.parameters(), config.adam),
      memory_(at_lengths_.start_memory(rows_.count)),
      input_(rows_.count, at_lengths_.geometry().lengths.segment, scales(),
             at::TensorOptions().device(model.options().device())),
      report_(at::zeros({6}, input_.numbers.options())),
      sound_(at::ones({}, report_.options().dtype(at::kBool))),
      loss_scale_(scales_loss.value_or(config.precision == machine::Precision::kFloat16),
                  model.options().device()) {
  report_.select(0, 3).fill_(-1);
}

std::int64_t DeviceStep::scales() const {
  return static_cast<std::int64_t>(at_lengths_.geometry().outputs.size());
}

void DeviceStep::forget() {
  for (const nn::NamedTensor& state : memory_.named()) state.tensor.zero_();
}

StepLoss DeviceStep::forward(std::int64_t number, nn::Memory& memory) {
  const std::int64_t rows = rows_.count, row = at_lengths_.geometry().lengths.segment + 1;
  nn::StepOptions options = step_options(config_, number, rows_.first);
  options.scale_weights = input_.scale_weights().to(at::kFloat);
  if (model_.network().reset_memory_at_documents) {
    options.age_tensor = input_.ids.narrow(0, rows * row, rows);
  }
  const nn::ModelPrecision precision(model_, config_.precision);
  return step_loss(at_lengths_, input_.ids.narrow(0, 0, rows * row).view({rows, row}), memory,
                   options, config_);
}

void DeviceStep::compute(std::int64_t number) {
  nn::Memory memory = memory_;
  const StepLoss loss = forward(number, memory);
  (loss.total * loss_scale_.factor()).backward();
  const std::vector<nn::NamedTensor> kept = memory_.named(), next = memory.named();
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i].tensor.copy_(next[i].tensor);
  loss_ = loss.loss.detach().to(at::kDouble);
  gradient_ = adam_.take_gradient();
}

double DeviceStep::loss_of(std::int64_t number, bool forgets) {
  const at::NoGradGuard no_gradient;
  nn::Memory memory = forgets ? at_lengths_.start_memory(rows_.count) : memory_;
  const at::Tensor loss = forward(number, memory).loss.to(at::kDouble);
  if (group_ != nullptr) {
    group_->sum(loss);
    group_->await_device();
  }
  return loss.item<double>();
}

void DeviceStep::sum() {
  if (group_ != nullptr) {
    group_->sum(loss_);
    group_->sum(gradient_);
  }
}

void DeviceStep::update() {
  const at::NoGradGuard no_gradient;
  const at::Tensor& loss = loss_;
  const at::Tensor scale = loss_scale_.factor().to(at::kDouble);
  // A norm in double precision would copy the gradient. So the norms of rows of kAlignment elements
  // have the gradient's type, and only the norm of these norms is in double precision. In float32,
  // an element beyond about 1e19 therefore counts as infinite.
  const at::Tensor of_rows = at::linalg_vector_norm(gradient_.view({-1, kAlignment}), 2, 1);
  const at::Tensor norm =
      at::linalg_vector_norm(of_rows, 2, at::OptionalIntArrayRef(), false, at::kDouble) / scale;
  const at::Tensor finite_loss = at::isfinite(loss), finite_norm = at::isfinite(norm);
  const at::Tensor applies = sound_.logical_and(finite_loss).logical_and(finite_norm);
  at::Tensor factor = 1 / scale;
  if (config_.clip > 0) factor = factor * (config_.clip / norm).clamp_max(1);
  adam_.step(gradient_, factor, input_.learning_rate(), applies);

  // A smaller loss scale can prevent an overflow, unless the scale is already 1.
  const at::Tensor avoidable = finite_loss.logical_and(scale.gt(1));
  const at::Tensor counts = applies.logical_or(sound_.logical_and(avoidable));
  const at::Tensor fails = sound_.logical_and(counts.logical_not());
  const at::Tensor zero = at::zeros({}, report_.options());
  const at::Tensor sums =
      at::stack({at::ones_like(zero), loss, at::where(finite_norm, norm, zero)});
  report_.narrow(0, 0, 3).add_(at::where(counts, sums, zero));
  const at::Tensor failure = report_.narrow(0, 3, 3);
  failure.copy_(at::where(fails, at::stack({input_.step(), loss, norm}), failure));
  sound_.logical_and_(fails.logical_not());

  loss_scale_.update(finite_norm);
  // This frees memory for the next step. With a group, gradient_ has to stay: if a GPU replays
  // compute(), nothing sets gradient_ again, but sum() still reads it in every step.
  if (group_ == nullptr) gradient_.reset();
}

StepReport DeviceStep::take_report() {
  const at::Tensor found = report_.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  const auto* values = found.data_ptr<double>();
  report_.narrow(0, 0, 3).zero_();
  return {static_cast<std::int64_t>(values[0]), values[1], values[2],
          static_cast<std::int64_t>(values[3]), values[4], values[5]};
}

std::vector<nn::NamedTensor> DeviceStep::moments() const {
  std::vector<nn::NamedTensor> moments = adam_.moments();
  if (loss_scale_.adapts()) moments.push_back({kLossScale, loss_scale_.state()});
  return moments;
}

bool can_be_recorded(const net::Network& network) {
  // With several clusters of the softmax, the host has to know the number of rows in each cluster.
  return net::clusters(network).size() == 1;
}

DeviceTrainer::DeviceTrainer(const net::Network& network, const TrainingConfig& config,
                             const ComputeDevice& compute, machine::ProcessGroup* group)
    : TrainedNetwork(network, config, compute.device, group),
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

DeviceTrainer::~DeviceTrainer() = default;

void DeviceTrainer::fill_input(Streams& streams, std::int64_t step, double learning_rate) {
  if (group_ != nullptr) group_->await_device();
#ifdef QL_CUDA
  // The last upload ends before `host_` is overwritten.
  if (cuda_) cuda_->wait_for_upload();
#endif
  auto* ids = host_.ids.data_ptr<std::int64_t>();
  if (model_.network().reset_memory_at_documents) {
    // document_ages() comes first: after read() it would wait for the reading ahead that read()
    // begins.
    const std::vector<std::int64_t> document_offsets = streams.document_ages(step);
    std::copy(document_offsets.begin(), document_offsets.end(),
              ids + step_.rows().count * (streams.segment() + 1));
  }
  streams.read(step, ids);
  const nn::StepOptions options = step_options(config_, step, step_.rows().first);
  host_.set_numbers(learning_rate, step,
                    nn::droppath_weights(step_.scales(), model_.network().droppath, options));
  // A GPU draws its dropout masks from the seeded generator. The CPU's generator is seeded only so
  // that a test can observe the seed.
  nn::seed_generator(model_.options().device(), options);
}

void DeviceTrainer::upload() {
  step_.input().ids.copy_(host_.ids, /*non_blocking=*/true);
  step_.input().numbers.copy_(host_.numbers, /*non_blocking=*/true);
}

double DeviceTrainer::loss_of(Streams& streams, std::int64_t step) {
  fill_input(streams, step, 0);
  upload();
  return step_.loss_of(step, streams.starts_epoch(step));
}

StepResult DeviceTrainer::step(Streams& streams, std::int64_t step, double learning_rate) {
  fill_input(streams, step, learning_rate);
  last_step_ = step;
  const auto begin = [&] {
    upload();
    if (streams.starts_epoch(step)) step_.forget();
  };
#ifdef QL_CUDA
  if (cuda_) {
    const auto compute = [&] { step_.compute(step); };
    const auto update = [&] { step_.update(); };
    const auto both = [&] {
      compute();
      update();
    };
    cuda_->enqueue(begin,
                   group_ == nullptr ? CudaSteps::Parts{both} : CudaSteps::Parts{compute, update},
                   [&] { step_.sum(); });
    return {0, 0, 0};
  }
#endif
  begin();
  step_.compute(step);
  step_.sum();
  step_.update();
  return {0, 0, 0};
}

nn::Memory DeviceTrainer::memory() const {
  return step_.memory().with([this](const at::Tensor& own) {
    return group_ != nullptr ? group_->all_rows(own, config_.batch) : own;
  });
}

void DeviceTrainer::set_memory(const nn::Memory& memory) {
  const at::NoGradGuard no_gradient;
  const machine::RowRange& rows = step_.rows();
  const std::vector<nn::NamedTensor> own = step_.memory().named(), all = memory.named();
  for (std::size_t i = 0; i < own.size(); ++i) {
    // The memory is copied in place, because a captured step reads it at its address.
    own[i].tensor.copy_(all[i].tensor.narrow(0, rows.first, rows.count));
  }
}

StepResult DeviceTrainer::finish() {
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
