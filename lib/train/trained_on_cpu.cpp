#include "train/trained_on_cpu.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "machine/threads.h"
#include "train/all_rows.h"

namespace ql::train {
namespace {

// The gradients of one pass more.
void add_gradients(Gradients& sum, Gradients more) {
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

void drop_gradients(const std::vector<nn::NamedTensor>& parameters) {
  for (const nn::NamedTensor& parameter : parameters) {
    parameter.tensor.mutable_grad().reset();
  }
}

}  // namespace

// Tokens and targets of a step, [own rows, segment], and how it runs.
struct TrainedOnCpu::Batch {
  at::Tensor tokens, targets;
  nn::StepOptions options;
  std::int64_t context = 0;    // the oldest targets of every segment, which are not trained on
  std::int64_t rows = 0;       // of all processes
  std::int64_t first_row = 0;  // among them

  std::int64_t counted() const { return tokens.size(1) - context; }
  nn::StepOptions options_of(const RowRange& range) const {
    nn::StepOptions own = options;
    own.first_row = first_row + range.first;
    if (!options.ages.empty()) {
      const auto first = options.ages.begin() + range.first;
      own.ages.assign(first, first + range.count);
    }
    return own;
  }
};

TrainedOnCpu::TrainedOnCpu(const net::Network& network, const TrainingConfig& config,
                           machine::ProcessGroup* group)
    : config_(config),
      geometry_(net::make_geometry(network, network.lengths)),
      model_(network, at::TensorOptions().dtype(at::kFloat)),
      adam_(model_.parameters(), {config.adam_beta1, config.adam_beta2, config.adam_epsilon}),
      group_(group),
      rows_(group != nullptr ? group->share_of(config.batch) : machine::RowRange{0, config.batch}),
      slices_(split_rows(rows_.count, config.slices, config.passes)) {
  model_.initialise(static_cast<std::uint64_t>(config.seed));
  set_own_memory(model_.start_memory(geometry_, rows_.count));
  if (group != nullptr) {
    shared_ = std::make_unique<Shared>(*group, model_, slices_.size());
  }
}

nn::Memory TrainedOnCpu::memory() const {
  nn::Memory whole = memories_.front().front();
  for (std::size_t state = 0; state < whole.states.size(); ++state) {
    std::vector<at::Tensor> rows;
    for (const std::vector<nn::Memory>& slice : memories_) {
      for (const nn::Memory& pass : slice) {
        rows.push_back(pass.states[state].tensor);
      }
    }
    whole.states[state].tensor = at::cat(rows);
    if (group_ != nullptr) {
      whole.states[state].tensor =
          all_rows(whole.states[state].tensor, *group_, rows_, config_.batch);
    }
  }
  return whole;
}

void TrainedOnCpu::set_memory(const nn::Memory& memory) {
  nn::Memory own = memory;
  for (nn::NamedTensor& state : own.states) {
    state.tensor = state.tensor.narrow(0, rows_.first, rows_.count);
  }
  set_own_memory(own);
}

void TrainedOnCpu::set_own_memory(const nn::Memory& memory) {
  memories_.clear();
  for (const Slice& slice : slices_) {
    memories_.emplace_back();
    for (const RowRange& rows : slice) {
      nn::Memory own = memory;
      for (nn::NamedTensor& state : own.states) {
        state.tensor = state.tensor.narrow(0, rows.first, rows.count).clone();
      }
      memories_.back().push_back(std::move(own));
    }
  }
}

TrainedOnCpu::SliceResult TrainedOnCpu::run_slice(std::size_t slice, const Batch& batch) {
  std::vector<at::Tensor> parameters;
  for (const nn::NamedTensor& parameter : model_.parameters()) {
    parameters.push_back(parameter.tensor);
  }
  const nn::Model& model = shared_ ? shared_->replicas.of(slice) : model_;
  SliceResult result;
  for (std::size_t pass = 0; pass < slices_[slice].size(); ++pass) {
    const RowRange& rows = slices_[slice][pass];
    const at::Tensor tokens = batch.tokens.narrow(0, rows.first, rows.count);
    const at::Tensor targets =
        batch.targets.narrow(0, rows.first, rows.count).narrow(1, batch.context, batch.counted());
    at::Tensor reconstruction;
    const at::Tensor states = model.forward(geometry_, tokens, memories_[slice][pass],
                                            batch.options_of(rows), &reconstruction);
    at::Tensor loss = model.loss(states.narrow(1, batch.context, batch.counted()), targets,
                                 1 / static_cast<double>(batch.rows * batch.counted()));
    result.loss += loss.item<double>();
    if (reconstruction.defined()) {
      const double share = static_cast<double>(rows.count) / static_cast<double>(batch.rows);
      loss = loss +
             share * config_.recons_loss_weight.value_or(kReconstructionWeight) * reconstruction;
    }
    if (shared_) {
      shared_->replicas.backward(slice, loss, pass + 1 == slices_[slice].size());
    } else {
      add_gradients(result.gradients,
                    torch::autograd::grad({loss}, parameters, {}, {}, false, true));
    }
  }
  return result;
}

std::vector<TrainedOnCpu::SliceResult> TrainedOnCpu::run_slices(const Batch& batch) {
  std::vector<SliceResult> results(slices_.size());
  if (slices_.size() == 1) {
    results[0] = run_slice(0, batch);  // on all threads
    return results;
  }
  const machine::OneThreadProducts one_thread_products;
  at::parallel_for(0, static_cast<std::int64_t>(slices_.size()), 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t slice = begin; slice < end; ++slice) {
                       const auto index = static_cast<std::size_t>(slice);
                       results[index] = run_slice(index, batch);
                     }
                   });
  return results;
}

StepResult TrainedOnCpu::step(Streams& streams, std::int64_t step, double learning_rate) {
  Batch batch;
  batch.rows = config_.batch;
  batch.first_row = rows_.first;
  const auto shape = {rows_.count, streams.segment()};
  batch.tokens = at::empty(shape, at::kLong);
  batch.targets = at::empty(shape, at::kLong);
  if (streams.starts_epoch(step)) {
    set_own_memory(model_.start_memory(geometry_, rows_.count));
  }
  batch.options.training = true;
  batch.options.seed = static_cast<std::uint64_t>(config_.seed);
  batch.options.step = static_cast<std::uint64_t>(step);
  if (model_.network().reset_memory_at_documents) {
    // Before read(), which begins to read the next step.
    batch.options.ages = streams.document_ages(step);
  }
  streams.read(step, batch.tokens.data_ptr<std::int64_t>(), batch.targets.data_ptr<std::int64_t>());
  batch.context = config_.half_loss ? streams.segment() / 2 : 0;

  // A step makes new memories and leaves those before it as they are.
  const std::vector<std::vector<nn::Memory>> before = memories_;
  const std::vector<SliceResult> results = run_slices(batch);

  StepResult result;
  std::vector<Gradients> gradients;
  for (const SliceResult& slice : results) {
    result.loss += slice.loss;
    gradients.push_back(slice.gradients);
  }
  if (shared_) {
    gradients = {shared_->exchange.finish()};
    shared_->replicas.drop_gradients();
    const at::Tensor loss = at::full({1}, result.loss, at::kDouble);
    group_->sum(loss);
    result.loss = loss.item<double>();
  }
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
