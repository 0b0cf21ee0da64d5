// Chooses the slices and passes of a training for this machine.

#include "train/division.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/resources.h"
#include "base/strings.h"
#include "machine/tensor_memory.h"
#include "train/gradients.h"

namespace ql::train {

// Returns the configuration with the most rows that a process of the group has as the batch.
static TrainingConfig largest_share(const TrainingTask& task) {
  TrainingConfig config = task.config;
  config.batch = (config.batch - 1) / task.group->size() + 1;
  return config;
}

// Returns the largest of the values that the processes of the group pass.
static std::int64_t largest(machine::ProcessGroup& group, std::int64_t value) {
  std::int64_t most = value;
  for (const std::string& text : group.gather(std::to_string(value))) {
    most = std::max<std::int64_t>(most, std::stoll(text));
  }
  return most;
}

// Chooses the numbers of slices (micro-batches) and passes (accumulation steps of each) that are 0
// in `config`, and returns the memory that the run then needs, or nothing if it needs more than
// `limit` bytes.
static std::optional<TrainingMemory> divide(const TrainingTask& task, TrainingConfig& config,
                                            std::int64_t validation_tokens, std::int64_t limit,
                                            std::int64_t known) {
  const int threads = at::get_num_threads();
  MemoryTrial trial(task.network, config, threads, limit);
  const auto fits = [&](std::int64_t passes) {
    return trial.step(config.slices, passes).has_value();
  };
  const auto fewest_passes = [&] {
    return choose_passes((config.batch - 1) / config.slices + 1, fits);
  };
  const bool chooses_slices = config.slices == 0, chooses_passes = config.passes == 0;
  if (chooses_slices) {
    config.slices = choose_slices(config.batch, task.network.lengths.segment, threads);
    if (!task.group->is_single()) {
      // choose_slices() gives two slices to one thread, so that one thread adds up gradients in the
      // same order as two. Several processes use another order anyway. So one thread takes one
      // slice here: its matrix products are larger, and faster.
      config.slices = std::min<std::int64_t>(config.slices, threads);
    }
  }
  if (chooses_passes) config.passes = fewest_passes();
  // Each slice has gradients of its own, which passes do not reduce. So if the run does not fit
  // into memory even with one row per pass, fewer slices are used.
  while (chooses_slices && config.slices > 2 && !fits(config.passes)) {
    // A single slice would make the results depend on the number of threads.
    config.slices = std::max<std::int64_t>(2, config.slices / 2);
    if (chooses_passes) config.passes = fewest_passes();
  }
  std::optional<TrainingMemory> memory = trial.step(config.slices, config.passes);
  const bool steps_fit = memory.has_value();
  if (steps_fit) memory = trial.with_validation(*memory, validation_tokens);
  if (!memory) {
    const std::int64_t passes = steps_fit ? config.passes : fewest_passes();
    log_warning(
        "this process needs more than nine tenths of the {} of memory available: the system may "
        "kill it; {}",
        human_bytes(known),
        !steps_fit && fits(passes) ? fmt::format("give --set passes={}", passes)
                                   : "use a smaller batch, shorter lengths or a smaller network");
  }
  return memory;
}

TrainingTask with_division(TrainingTask task, const std::filesystem::path& checkpoint,
                           std::int64_t frame_bytes, std::int64_t validation_tokens,
                           std::optional<TrainingMemory>& memory) {
  // A GPU computes all rows at once.
  if (!task.compute.device.is_cpu()) return task;
  TrainingConfig config = largest_share(task);
  if (!checkpoint.empty()) {
    const net::ModelFile file = net::read_model_file(checkpoint);
    const JsonObject saved(file.training, checkpoint.string());
    const auto take_saved = [&](const char* key, std::int64_t& number) {
      const auto& named = task.named;
      const bool is_named = std::find(named.begin(), named.end(), key) != named.end();
      if (number == 0 && !is_named) number = saved.integer(key, 0);
    };
    take_saved("slices", config.slices);
    take_saved("passes", config.passes);
  }
  const std::int64_t known = available_bytes() / task.group->local_size();
  // The trial of a process must not begin before all processes have looked.
  task.group->from_first(std::int64_t{0});
  // A tenth is left for the system's cache of files.
  const std::int64_t available =
      known == 0 ? std::numeric_limits<std::int64_t>::max() : known - known / 10;
  const std::int64_t data = config.batch * frame_bytes;
  const auto measure = [&](std::int64_t slices, std::int64_t passes) {
    config.slices = slices;
    config.passes = passes;
    memory = divide(task, config, validation_tokens, available - data, known);
    machine::return_freed_memory();
  };
  const std::int64_t given_passes = config.passes;
  measure(config.slices, given_passes);
  // Other processes may have more threads, or less memory.
  task.config.slices = task.group->from_first(config.slices);
  if (config.slices != task.config.slices) measure(task.config.slices, given_passes);
  task.config.passes = largest(*task.group, config.passes);
  if (config.passes != task.config.passes) measure(task.config.slices, task.config.passes);
  if (memory) {
    memory->process = resident_bytes();
    memory->data = data;
  }
  return task;
}

void log_division(const TrainingTask& task, const std::optional<TrainingMemory>& memory) {
  const TrainingConfig config = largest_share(task);
  const std::vector<Slice> slices = split_rows(config.batch, config.slices, config.passes);
  std::int64_t rows = 0;
  std::size_t passes = 0;
  for (const Slice& slice : slices) {
    rows = std::max(rows, slice.back().first + slice.back().count - slice.front().first);
    passes = std::max(passes, slice.size());
  }
  log_info("{} of up to {}, each in {}", counted(static_cast<std::int64_t>(slices.size()), "slice"),
           counted(rows, "row"),
           passes == 1 ? std::string("1 pass") : fmt::format("up to {} passes", passes));
  if (!memory) return;
  log_info(
      "memory needed: {} ({} for the program, {} for weights and optimizer, {} for memories, {} "
      "for data; {} for a step, or {} for validation if that is more)",
      human_bytes(memory->total()), human_bytes(memory->process), human_bytes(memory->weights),
      human_bytes(memory->memories), human_bytes(memory->data), human_bytes(memory->step),
      human_bytes(memory->validation));
}

}  // namespace ql::train
