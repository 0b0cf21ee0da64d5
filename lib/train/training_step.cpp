// Implements a training step on the CPU: its micro-batches, the sum of their gradients, and the
// update.

#include "train/training_step.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "train/device_step.h"

namespace ql::train {

TrainedNetwork::TrainedNetwork(const net::Network& network, const TrainingConfig& config,
                               const c10::Device& device, machine::ProcessGroup* group)
    : config_(config),
      group_(group),
      model_(network, at::TensorOptions(at::kFloat).device(device)) {
  model_.initialise(static_cast<std::uint64_t>(config.seed));
}

std::unique_ptr<TrainedNetwork> make_trained_network(const net::Network& network,
                                                     const TrainingConfig& config,
                                                     const ComputeDevice& compute,
                                                     machine::ProcessGroup* group) {
  if (compute.device.is_cpu()) return std::make_unique<CpuTrainer>(network, config, group);
  return std::make_unique<DeviceTrainer>(network, config, compute, group);
}

// Adds the gradients of one more pass.
static void add_gradients(Gradients& sum, Gradients more) {
  if (sum.empty()) {
    sum = std::move(more);
    return;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (sum[i].defined() && more[i].defined()) {
      sum[i].add_(more[i]);
    } else if (more[i].defined()) {
      sum[i] = more[i];
    }
  }
}

static void drop_gradients(const std::vector<nn::NamedTensor>& parameters) {
  for (const nn::NamedTensor& parameter : parameters) parameter.tensor.mutable_grad().reset();
}

CpuTrainer::CpuTrainer(const net::Network& network, const TrainingConfig& config,
                       machine::ProcessGroup* group)
    : TrainedNetwork(network, config, at::kCPU, group),
      at_lengths_(model_, network.lengths),
      adam_(model_.parameters(), config.adam),
      rows_(machine::own_rows(group, config.batch)),
      slices_(split_rows(rows_.count, config.slices, config.passes)) {
  set_own_memory(at_lengths_.start_memory(rows_.count));
  if (group != nullptr) shared_ = std::make_unique<Shared>(*group, model_, slices_.size());
}

nn::Memory CpuTrainer::memory() const {
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
    const at::Tensor own = at::cat(rows);
    return group_ != nullptr ? group_->all_rows(own, config_.batch) : own;
  });
}

void CpuTrainer::set_memory(const nn::Memory& memory) {
  set_own_memory(memory.with(
      [this](const at::Tensor& all) { return all.narrow(0, rows_.first, rows_.count); }));
}

void CpuTrainer::set_own_memory(const nn::Memory& memory) {
  memories_.clear();
  for (const Slice& slice : slices_) {
    memories_.emplace_back();
    for (const RowRange& rows : slice) {
      memories_.back().push_back(memory.with(
          [&](const at::Tensor& all) { return all.narrow(0, rows.first, rows.count).clone(); }));
    }
  }
}

CpuTrainer::Input CpuTrainer::read(Streams& streams, std::int64_t step) {
  Input input{at::empty({rows_.count, streams.segment() + 1}, at::kLong),
              step_options(config_, step, rows_.first)};
  if (model_.network().reset_memory_at_documents) {
    // document_ages() comes first: after read() it would wait for the reading ahead that read()
    // begins.
    input.options.document_offsets = streams.document_ages(step);
  }
  streams.read(step, input.ids.data_ptr<std::int64_t>());
  if (streams.starts_epoch(step)) set_own_memory(at_lengths_.start_memory(rows_.count));
  return input;
}

CpuTrainer::SliceResult CpuTrainer::run_slice(std::size_t slice, const Input& input) {
  std::vector<at::Tensor> parameters;
  for (const nn::NamedTensor& parameter : model_.parameters()) {
    parameters.push_back(parameter.tensor);
  }
  const nn::ModelAtLengths& model = shared_ ? shared_->replicas.of(slice) : at_lengths_;
  SliceResult result;
  for (std::size_t pass = 0; pass < slices_[slice].size(); ++pass) {
    const RowRange& rows = slices_[slice][pass];
    nn::StepOptions own = input.options;
    own.first_row += rows.first;
    if (!own.document_offsets.empty()) {
      const auto first = input.options.document_offsets.begin() + rows.first;
      own.document_offsets.assign(first, first + rows.count);
    }
    const StepLoss loss = step_loss(model, input.ids.narrow(0, rows.first, rows.count),
                                    memories_[slice][pass], own, config_);
    result.loss += loss.loss.item<double>();
    if (!at::GradMode::is_enabled()) continue;
    if (shared_) {
      shared_->replicas.backward(slice, loss.total, pass + 1 == slices_[slice].size());
    } else {
      add_gradients(result.gradients,
                    torch::autograd::grad({loss.total}, parameters, {}, {}, false, true));
    }
  }
  return result;
}

std::vector<CpuTrainer::SliceResult> CpuTrainer::run_slices(const Input& input) {
  std::vector<SliceResult> results(slices_.size());
  const nn::ModelPrecision precision(model_, config_.precision);
  if (slices_.size() == 1) {
    results[0] = run_slice(0, input);  // on all threads
    return results;
  }
  machine::for_pieces(static_cast<std::int64_t>(slices_.size()), 1,
                      [&](std::int64_t slice, std::int64_t) {
                        const auto index = static_cast<std::size_t>(slice);
                        results[index] = run_slice(index, input);
                      });
  return results;
}

double CpuTrainer::sum_of_losses(const std::vector<SliceResult>& slices) const {
  double sum = 0;
  for (const SliceResult& slice : slices) sum += slice.loss;
  if (group_ == nullptr) return sum;
  const at::Tensor loss = at::full({1}, sum, at::kDouble);
  group_->sum(loss);
  return loss.item<double>();
}

double CpuTrainer::loss_of(Streams& streams, std::int64_t step) {
  const at::NoGradGuard no_gradient;
  // A step makes new memories and does not change the old ones.
  const std::vector<std::vector<nn::Memory>> before = memories_;
  const std::vector<SliceResult> results = run_slices(read(streams, step));
  memories_ = before;
  return sum_of_losses(results);
}

StepResult CpuTrainer::step(Streams& streams, std::int64_t step, double learning_rate) {
  const Input input = read(streams, step);
  const std::vector<std::vector<nn::Memory>> before = memories_;
  const std::vector<SliceResult> results = run_slices(input);

  std::vector<Gradients> gradients;
  for (const SliceResult& slice : results) gradients.push_back(slice.gradients);
  if (shared_) {
    gradients = {shared_->exchange.finish()};
    shared_->replicas.drop_gradients();
  }
  StepResult result;
  result.loss = sum_of_losses(results);
  result.gradient_norm = join_gradients(model_.parameters(), gradients);
  Divergence divergence{step, result.loss, result.gradient_norm, largest_loss()};
  if (!divergence.reason().empty()) {
    memories_ = before;
    divergence.layers = group_norms(model_.parameters());
    drop_gradients(model_.parameters());
    throw Diverged(divergence);
  }
  adam_.step(learning_rate, clip_scale(result.gradient_norm, config_.clip));
  return result;
}

}  // namespace ql::train
