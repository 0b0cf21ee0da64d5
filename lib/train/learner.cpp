#include "train/learner.h"

#include <cmath>

#include "base/error.h"

namespace ql::train {
namespace {

// recons_loss_weight of the paper's appendix E.
constexpr double kReconstructionWeight = 0.01;

void require_finite(double value, const char* what, std::int64_t step) {
  if (!std::isfinite(value)) {
    throw Error(fmt::format("step {}", step + 1),
                fmt::format("the {} is {}", what, std::isnan(value) ? "not a number" : "infinite"),
                "train again with a lower learning_rate, more warmup_steps or a smaller clip; "
                "--init can start from a checkpoint of this run, if it has one");
  }
}

}  // namespace

Learner::Learner(const net::Network& network, const TrainingConfig& config)
    : config_(config),
      geometry_(net::make_geometry(network, network.lengths)),
      model_(network, at::TensorOptions().dtype(at::kFloat)),
      adam_(model_.parameters(), {config.adam_beta1, config.adam_beta2, config.adam_epsilon}) {
  model_.initialise(static_cast<std::uint64_t>(config.seed));
  memory_ = model_.start_memory(geometry_, config.batch);
}

StepResult Learner::step(Streams& streams, std::int64_t step, double learning_rate) {
  const auto shape = {streams.batch(), streams.segment()};
  const at::Tensor tokens = at::empty(shape, at::kLong);
  const at::Tensor targets = at::empty(shape, at::kLong);
  streams.read(step, tokens.data_ptr<std::int64_t>(), targets.data_ptr<std::int64_t>());
  if (streams.starts_epoch(step)) {
    memory_ = model_.start_memory(geometry_, config_.batch);
  }
  nn::StepOptions options;
  options.training = true;
  options.seed = static_cast<std::uint64_t>(config_.seed);
  options.step = static_cast<std::uint64_t>(step);
  if (model_.network().reset_memory_at_documents) {
    options.ages = streams.document_ages(step);
  }

  at::Tensor reconstruction;
  const at::Tensor states = model_.forward(geometry_, tokens, memory_, options, &reconstruction);
  const std::int64_t context = config_.half_loss ? streams.segment() / 2 : 0;
  const std::int64_t counted = streams.segment() - context;
  const at::Tensor loss =
      model_.losses(states.narrow(1, context, counted), targets.narrow(1, context, counted)).mean();
  StepResult result;
  result.loss = loss.item<double>();
  require_finite(result.loss, "loss", step);
  const double weight = config_.recons_loss_weight.value_or(kReconstructionWeight);
  (reconstruction.defined() ? loss + weight * reconstruction : loss).backward();
  result.gradient_norm = adam_.gradient_norm();
  require_finite(result.gradient_norm, "gradient's norm", step);
  adam_.step(learning_rate, clip_scale(result.gradient_norm, config_.clip));
  return result;
}

}  // namespace ql::train
