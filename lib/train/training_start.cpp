#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "nn/safetensors.h"
#include "nn/weights.h"
#include "train/checkpoint.h"
#include "train/compatible.h"
#include "train/estimate.h"
#include "train/schedule.h"
#include "train/training_run.h"

namespace ql::train {
namespace {

DataIdentity identity_of(const shard::TokenReader& data) {
  return {data.name(), data.hash(), data.tokens()};
}

net::ModelFile describe(const TrainingTask& task, const shard::TokenReader& data) {
  net::ModelFile description;
  description.network = task.network;
  description.vocabulary = data.vocabulary();
  description.training = training_to_json(task.config);
  description.provenance = task.provenance;
  return description;
}

const TrainingTask& checked(const TrainingTask& task, const shard::TokenReader& data,
                            const shard::TokenReader& validation) {
  require_same_vocabulary(validation.name(), validation.vocabulary(), data.name(),
                          data.vocabulary());
  try {
    net::make_geometry(task.network, task.config.evaluation_lengths(task.network.lengths));
  } catch (const ConfigError& error) {
    throw ConfigError("lengths of validation", error.what());
  }
  return task;
}

}  // namespace

TrainingRun::TrainingRun(const TrainingTask& task, shard::TokenReader& data,
                         shard::TokenReader& validation)
    : task_(checked(task, data, validation)),
      validation_data_(validation),
      streams_(data, task.config.batch, task.network.lengths.segment),
      description_(describe(task, data)),
      folder_(task.run, task.start),
      learner_(task.network, task.config),
      line_("training", "steps", task.config.steps) {
  state_.data = identity_of(data);
  state_.validation = identity_of(validation);
}

void TrainingRun::start() {
  if (task_.start == Start::kResume && fs::exists(folder_.last())) {
    resume();
  } else {
    begin();
  }
  log_.emplace(folder_.log(), state_.step, state_.validation_step);
  watch_ = Stopwatch(state_.elapsed);
  progress_at_start_ = progress();
}

void TrainingRun::resume() {
  const net::ModelFile saved = net::read_model_file(folder_.last());
  require_same_training(folder_.last().string(), saved, read_state(folder_.last()), description_,
                        state_.data, state_.validation);
  const TrainingState saved_state = read_checkpoint(folder_.last(), learner_);
  const DataIdentity data = state_.data, validation = state_.validation;
  state_ = saved_state;
  state_.data = data;
  state_.validation = validation;
  log_info("resuming after step {}", with_thousands(state_.step));
}

void TrainingRun::begin() {
  if (task_.start == Start::kResume) {
    log_info("{} has no checkpoint yet: starting anew", task_.run.string());
  }
  if (!task_.init.empty()) {
    const net::ModelFile origin = net::read_model_file(task_.init);
    if (origin.vocabulary) {
      require_same_vocabulary(task_.init.string(), *origin.vocabulary, state_.data.name,
                              *description_.vocabulary);
    }
    nn::load_weights(learner_.model(), nn::read_safetensors(task_.init / "model.safetensors"));
    log_info("weights from {} ({})", task_.init.string(), to_text(origin.network.architecture));
  }
  folder_.clear();
}

void TrainingRun::announce() const {
  const std::int64_t parameters = learner_.model().parameter_count();
  std::vector<std::string> lines = network_lines(task_.network, parameters);
  if (!task_.machine.empty()) {
    lines.insert(lines.begin(), task_.machine);
  }
  for (std::string& line : schedule_lines(task_.config, streams_, state_.data, state_.validation)) {
    lines.push_back(std::move(line));
  }
  const MemoryEstimate memory = estimate_memory(task_.network, parameters, task_.config.batch);
  lines.push_back(fmt::format("memory needed: about {} ({} for weights and optimizer)",
                              human_bytes(memory.total()), human_bytes(memory.parameters)));
  for (const std::string& line : lines) {
    log_info("{}", line);
  }
}

}  // namespace ql::train
