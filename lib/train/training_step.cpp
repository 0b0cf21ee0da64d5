// Implements a training step on every device: slices (micro-batches) on the CPU or one list of
// operations, the sum of their gradients, and the update.

#include "train/training_step.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <numeric>

#include "net/cost.h"
#include "nn/compression.h"

#ifdef QL_CUDA
#include "train/cuda_steps.h"
#endif

namespace ql::train {

StepInput::StepInput(std::int64_t batch, std::int64_t segment, std::int64_t scales,
                     const at::TensorOptions& options)
    : ids(at::zeros({batch * (segment + 1) + batch}, options.dtype(at::kLong))),
      numbers(at::zeros({3 + scales}, options.dtype(at::kDouble))) {}

void StepInput::set_numbers(double learning_rate, std::int64_t step, double largest_loss,
                            const std::vector<double>& weights) {
  auto* out = numbers.data_ptr<double>();
  out[0] = learning_rate;
  out[1] = static_cast<double>(step);
  out[2] = largest_loss;
  std::copy(weights.begin(), weights.end(), out + 3);
}

LossScale::LossScale(bool adapts, const at::Device& device)
    : adapts_(adapts), state_(at::zeros({2}, at::TensorOptions(at::kFloat).device(device))) {
  state_.select(0, 0).fill_(adapts ? kFirst : 1);
}

void LossScale::update(const at::Tensor& finite) {
  if (!adapts_) return;
  const at::Tensor old = factor(), steps = state_.select(0, 1) + 1;
  const at::Tensor doubles = finite.logical_and(steps.ge(kStepsToDouble));
  const at::Tensor raised = at::where(doubles, (old * 2).clamp_max(kLargest), old);
  const at::Tensor next = at::where(finite, raised, (old / 2).clamp_min(1));
  const at::Tensor stays = finite.logical_and(doubles.logical_not());
  state_.copy_(at::stack({next, steps * stays}));
}

// Holds a model for each slice (micro-batch). Each passes its gradients to `exchange`, which adds
// them up over slices and processes.
struct TrainingStep::SliceModels {
  SliceModels(machine::ProcessGroup& group, const nn::ModelAtLengths& model, std::size_t slices)
      : exchange(group, model.model().weights().flat, slices),
        replicas(model, slices,
                 [this](std::size_t slice, std::size_t parameter, at::Tensor gradient) {
                   exchange.put(slice, parameter, std::move(gradient));
                 }) {}
  GradientExchange exchange;
  Replicas replicas;
};

TrainingStep::TrainingStep(nn::Model& model, const TrainingConfig& config,
                           machine::ProcessGroup& group, bool enqueues,
                           std::optional<bool> scales_loss)
    : model_(model),
      config_(config),
      group_(group),
      enqueues_(enqueues),
      rows_(group.share_of(config.batch)),
      slices_(enqueues ? split_rows(rows_.count, 1, 1)
                       : split_rows(rows_.count, config.slices, config.passes)),
      at_lengths_(model, model.network().lengths),
      adam_(parameters(), config.adam, !enqueues),
      memories_(split(at_lengths_.start_memory(rows_.count))),
      next_(enqueues ? memories_ : split(at_lengths_.start_memory(rows_.count))),
      input_(rows_.count, at_lengths_.geometry().lengths.segment, scales(),
             at::TensorOptions().device(model.options().device())),
      loss_scale_(
          enqueues && scales_loss.value_or(config.precision == machine::Precision::kFloat16),
          model.options().device()),
      report_(at::zeros({7}, input_.numbers.options())),
      sound_(at::ones({}, report_.options().dtype(at::kBool))) {
  report_.select(0, 3).fill_(-1);
  if (!enqueues) slice_models_ = std::make_unique<SliceModels>(group, at_lengths_, slices_.size());
}

TrainingStep::~TrainingStep() = default;

std::int64_t TrainingStep::scales() const {
  return static_cast<std::int64_t>(at_lengths_.geometry().outputs.size());
}

TrainingStep::Memories TrainingStep::split(const nn::Memory& own) const {
  Memories memories;
  for (const Slice& slice : slices_) {
    memories.emplace_back();
    for (const RowRange& rows : slice) {
      memories.back().push_back(own.with(
          [&](const at::Tensor& all) { return all.narrow(0, rows.first, rows.count).clone(); }));
    }
  }
  return memories;
}

nn::Memory TrainingStep::memory() const {
  std::vector<std::vector<nn::NamedTensor>> parts;
  for (const std::vector<nn::Memory>& slice : memories_) {
    for (const nn::Memory& pass : slice) parts.push_back(pass.named());
  }
  std::size_t number = 0;
  return memories_.front().front().with([&](const at::Tensor&) {
    std::vector<at::Tensor> rows;
    rows.reserve(parts.size());
    for (const std::vector<nn::NamedTensor>& part : parts) rows.push_back(part[number].tensor);
    ++number;
    return at::cat(rows);
  });
}

// Copies in place. A captured step reads the memory at its address; and memories that stay in place
// leave no gaps between the tensors of a step.
static void overwrite(const nn::Memory& memory, const nn::Memory& by) {
  const std::vector<nn::NamedTensor> kept = memory.named(), next = by.named();
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i].tensor.copy_(next[i].tensor);
}

void TrainingStep::set_memory(const nn::Memory& own) {
  const at::NoGradGuard no_gradient;
  for (std::size_t slice = 0; slice < slices_.size(); ++slice) {
    for (std::size_t pass = 0; pass < slices_[slice].size(); ++pass) {
      const RowRange& rows = slices_[slice][pass];
      overwrite(memories_[slice][pass], own.with([&rows](const at::Tensor& all) {
        return all.narrow(0, rows.first, rows.count);
      }));
    }
  }
}

void TrainingStep::forget() {
  const at::NoGradGuard no_gradient;
  for (const std::vector<nn::Memory>& slice : memories_) {
    for (const nn::Memory& pass : slice) {
      for (const nn::NamedTensor& part : pass.named()) part.tensor.zero_();
    }
  }
}

nn::StepOptions TrainingStep::options_of(std::int64_t number, const RowRange& rows) const {
  nn::StepOptions options = step_options(config_, number, rows_.first + rows.first);
  if (enqueues_) options.scale_weights = input_.scale_weights().to(at::kFloat);
  if (!model_.network().reset_memory_at_documents) return options;
  const at::Tensor offsets =
      input_.ids.narrow(0, input_.ids.size(0) - rows_.count + rows.first, rows.count);
  if (enqueues_) {
    options.document_offset_tensor = offsets;
  } else {
    const auto* first = offsets.data_ptr<std::int64_t>();
    options.document_offsets.assign(first, first + rows.count);
  }
  return options;
}

at::Tensor TrainingStep::run_slice(std::size_t slice, std::int64_t number,
                                   const Memories& memories) {
  const nn::ModelAtLengths& model = enqueues_ ? at_lengths_ : slice_models_->replicas.of(slice);
  const std::int64_t row = at_lengths_.geometry().lengths.segment + 1;
  const at::Tensor ids = input_.ids.narrow(0, 0, rows_.count * row).view({rows_.count, row});
  at::Tensor sum;
  for (std::size_t pass = 0; pass < slices_[slice].size(); ++pass) {
    const RowRange& rows = slices_[slice][pass];
    // LibTorch's autocast must not reach the backward pass.
    std::optional<nn::ModelPrecision> precision;
    if (enqueues_) precision.emplace(model_, config_.precision);
    nn::Memory memory = memories[slice][pass];
    const StepLoss loss = step_loss(model, ids.narrow(0, rows.first, rows.count), memory,
                                    options_of(number, rows), config_);
    precision.reset();
    const at::Tensor of_pass = loss.loss.detach().to(at::kDouble);
    sum = sum.defined() ? sum + of_pass : of_pass;
    if (!at::GradMode::is_enabled()) continue;
    if (enqueues_) {
      (loss.total * loss_scale_.factor()).backward();
    } else {
      slice_models_->replicas.backward(slice, loss.total, pass + 1 == slices_[slice].size());
    }
    const at::NoGradGuard no_gradient;
    overwrite(next_[slice][pass], memory);
    if (!enqueues_) continue;
    std::vector<at::Tensor> gradients;
    for (const nn::NamedTensor& parameter : parameters().named) {
      gradients.push_back(std::exchange(parameter.tensor.mutable_grad(), at::Tensor()));
    }
    gradient_ = {concatenate(parameters(), gradients)};
  }
  return sum;
}

at::Tensor TrainingStep::run_slices(std::int64_t number, const Memories& memories) {
  // The rounded copy of the weights serves the forward and the backward pass of all slices, whose
  // models share the memory of the weights (kernels/product.h).
  std::optional<nn::ModelPrecision> precision;
  if (!enqueues_) precision.emplace(model_, config_.precision);
  if (slices_.size() == 1) return run_slice(0, number, memories);  // on all threads
  std::vector<at::Tensor> losses(slices_.size());
  machine::for_pieces(static_cast<std::int64_t>(slices_.size()), 1,
                      [&](std::int64_t slice, std::int64_t) {
                        const auto index = static_cast<std::size_t>(slice);
                        losses[index] = run_slice(index, number, memories);
                      });
  at::Tensor sum = losses.front();
  for (std::size_t slice = 1; slice < losses.size(); ++slice) sum = sum + losses[slice];
  return sum;
}

void TrainingStep::compute(std::int64_t number) {
  loss_ = run_slices(number, memories_);
  std::swap(memories_, next_);
}

void TrainingStep::sum() {
  if (enqueues_) {
    group_.sum(gradient_.front().values);
  } else {
    gradient_ = slice_models_->exchange.finish();
    squares_ = sums_of_squares(parameters(), gradient_);
  }
  group_.sum(loss_);
}

// Returns float64 without dimension.
at::Tensor TrainingStep::gradient_norm() const {
  if (enqueues_) return norm_by_operations(gradient_.front());
  return at::full({}, std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0)),
                  at::kDouble);
}

void TrainingStep::update() {
  const at::NoGradGuard no_gradient;
  const at::Tensor scale = loss_scale_.factor().to(at::kDouble);
  const at::Tensor norm = gradient_norm() / scale;
  const at::Tensor good_loss = at::isfinite(loss_).logical_and(loss_.le(input_.largest_loss()));
  const at::Tensor finite_norm = at::isfinite(norm);
  // A step is applied, or diverges, or is left out because only its scaled gradient overflows.
  const at::Tensor applies = sound_.logical_and(good_loss).logical_and(finite_norm);
  at::Tensor factor = 1 / scale;
  if (config_.clip > 0) factor = factor * (config_.clip / norm).clamp_max(1);
  adam_.step(gradient_, factor, input_.learning_rate(), applies);

  // A smaller loss scale can prevent an overflow, unless the scale is already 1.
  const at::Tensor avoidable = good_loss.logical_and(scale.gt(1));
  const at::Tensor counts = applies.logical_or(sound_.logical_and(avoidable));
  const at::Tensor fails = sound_.logical_and(counts.logical_not());
  const at::Tensor zero = at::zeros({}, report_.options());
  const at::Tensor sums =
      at::stack({at::ones_like(zero), loss_, at::where(finite_norm, norm, zero)});
  report_.narrow(0, 0, 3).add_(at::where(counts, sums, zero));
  const at::Tensor failure = report_.narrow(0, 3, 4);
  failure.copy_(
      at::where(fails, at::stack({input_.step(), loss_, norm, input_.largest_loss()}), failure));
  sound_.logical_and_(fails.logical_not());

  loss_scale_.update(finite_norm);
  if (!enqueues_ && !applies.item<bool>()) std::swap(memories_, next_);
  // This frees memory for the next step. With several processes on GPUs, gradient_ has to stay: if
  // a GPU replays compute(), nothing sets gradient_ again, but sum() still reads it in every step.
  if (!enqueues_ || group_.is_single()) gradient_.clear();
}

double TrainingStep::loss_of(std::int64_t number, bool forgets) {
  const at::NoGradGuard no_gradient;
  Memories memories = forgets ? split(at_lengths_.start_memory(rows_.count)) : memories_;
  const at::Tensor loss = run_slices(number, memories);
  group_.sum(loss);
  group_.await_device();
  return loss.item<double>();
}

StepReport TrainingStep::take_report() {
  const at::Tensor found = report_.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  const auto* values = found.data_ptr<double>();
  StepReport report{{static_cast<std::int64_t>(values[0]), values[1], values[2]}};
  if (values[3] >= 0) {
    report.failure =
        Divergence{static_cast<std::int64_t>(values[3]), values[4], values[5], values[6]};
    report.failure->layers = group_norms(parameters(), squares_);
  }
  report_.zero_();
  report_.select(0, 3).fill_(-1);
  sound_.fill_(true);
  return report;
}

std::vector<nn::NamedTensor> TrainingStep::moments() const {
  std::vector<nn::NamedTensor> moments = adam_.moments();
  if (loss_scale_.adapts()) moments.push_back({kLossScale, loss_scale_.state()});
  return moments;
}

bool can_be_recorded(const net::Network& network) {
  // With several clusters of the softmax, the host has to know the number of rows in each cluster.
  return net::clusters(network).size() == 1;
}

TrainedNetwork::TrainedNetwork(const net::Network& network, const TrainingConfig& config,
                               const ComputeDevice& compute, machine::ProcessGroup& group)
    : config_(config),
      compute_(compute),
      group_(group),
      model_(network, at::TensorOptions(at::kFloat).device(compute.device)),
      step_(model_, config, group, compute.enqueues()),
      host_(step_.rows().count, network.lengths.segment, step_.scales(),
            at::TensorOptions().pinned_memory(compute.device.is_cuda())) {
  model_.initialise(static_cast<std::uint64_t>(config.seed));
  group_.join_device(compute.device);
#ifdef QL_CUDA
  if (compute.device.is_cuda()) {
    cuda_ = std::make_unique<CudaSteps>(compute.device, compute.graph && can_be_recorded(network));
  }
#endif
}

TrainedNetwork::~TrainedNetwork() = default;

void TrainedNetwork::fill_input(Streams& streams, std::int64_t step, double learning_rate) {
  group_.await_device();
#ifdef QL_CUDA
  // The last upload ends before `host_` is overwritten.
  if (cuda_) cuda_->wait_for_upload();
#endif
  const std::int64_t segment = model_.network().lengths.segment;
  const machine::RowRange& rows = step_.rows();
  if (streams.segment() != segment || streams.batch() != config_.batch ||
      streams.rows().first != rows.first || streams.rows().count != rows.count) {
    throw ConfigError(
        "streams",
        fmt::format("read the segment {}, and of the batch {} the rows {} to {}; expected {}, {}, "
                    "{} and {}",
                    streams.segment(), streams.batch(), streams.rows().first,
                    streams.rows().first + streams.rows().count - 1, segment, config_.batch,
                    rows.first, rows.first + rows.count - 1));
  }
  auto* ids = host_.ids.data_ptr<std::int64_t>();
  if (model_.network().reset_memory_at_documents) {
    // document_offsets() comes first: after read() it would wait for the reading ahead that read()
    // begins.
    const std::vector<std::int64_t> document_offsets = streams.document_offsets(step);
    std::copy(document_offsets.begin(), document_offsets.end(), ids + rows.count * (segment + 1));
  }
  streams.read(step, ids);
  const nn::StepOptions options = step_options(config_, step, step_.rows().first);
  host_.set_numbers(learning_rate, step, largest_loss_,
                    nn::droppath_weights(step_.scales(), model_.network().droppath, options));
  // A GPU draws its dropout masks from the seeded generator. The CPU's generator is seeded only so
  // that a test can observe the seed.
  nn::seed_generator(model_.options().device(), options);
}

void TrainedNetwork::upload() {
  step_.input().ids.copy_(host_.ids, /*non_blocking=*/true);
  step_.input().numbers.copy_(host_.numbers, /*non_blocking=*/true);
}

double TrainedNetwork::loss_of(Streams& streams, std::int64_t step) {
  fill_input(streams, step, 0);
  upload();
  return step_.loss_of(step, streams.starts_epoch(step));
}

StepSums TrainedNetwork::step(Streams& streams, std::int64_t step, double learning_rate) {
  fill_input(streams, step, learning_rate);
  const auto begin = [&] {
    upload();
    if (streams.starts_epoch(step)) step_.forget();
  };
#ifdef QL_CUDA
  if (cuda_) {
    const auto compute = [&] { step_.compute(step); };
    const auto update = [&] { step_.update(); };
    // A single process needs no sum(), so the step is one list.
    const auto both = [&] {
      compute();
      update();
    };
    cuda_->enqueue(begin,
                   group_.is_single() ? CudaSteps::Parts{both} : CudaSteps::Parts{compute, update},
                   [&] { step_.sum(); });
    return {};
  }
#endif
  begin();
  step_.compute(step);
  step_.sum();
  step_.update();
  return compute_.enqueues() ? StepSums() : finish();
}

nn::Memory TrainedNetwork::memory() const {
  return step_.memory().with(
      [this](const at::Tensor& own) { return group_.all_rows(own, config_.batch); });
}

void TrainedNetwork::set_memory(const nn::Memory& memory) {
  const machine::RowRange& rows = step_.rows();
  step_.set_memory(memory.with(
      [&rows](const at::Tensor& all) { return all.narrow(0, rows.first, rows.count); }));
}

StepSums TrainedNetwork::finish() {
  group_.await_device();
#ifdef QL_CUDA
  if (cuda_) cuda_->wait();
#endif
  const StepReport report = step_.take_report();
  if (report.failure) throw Diverged(*report.failure);
  return report.sums;
}

}  // namespace ql::train
