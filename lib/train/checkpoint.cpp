// Writes and checks the files of a checkpoint, and searches for the newest complete checkpoint.

#include "train/checkpoint.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/log.h"
#include "train/run_folder.h"
#include "weights/safetensors.h"
#include "weights/weights.h"

namespace ql::train {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kMemory = "memory.safetensors";

// Returns the files whose hashes state.json has. Data of imported ids may have no vocabulary.
static std::vector<std::string> covered_files(bool with_vocabulary) {
  std::vector<std::string> files = {"model.json", kWeights, kOptimizer, kMemory};
  if (with_vocabulary) files.emplace_back(shard::kVocabularyFile);
  return files;
}

// The remedy does not name --force, which would remove the good checkpoints.
constexpr const char* kRemedy =
    "restore the folder from a copy, or use --resume, which continues from the newest complete "
    "checkpoint";

// Copies every tensor of `wanted` from the file, which must hold exactly the same tensors. Only
// kLossScale may be missing on one side, because only float16 has it: a run that changes to float16
// begins with the initial factor, and a run that changes from float16 ignores the saved factor.
static void restore(const fs::path& path, std::vector<nn::NamedTensor> wanted) {
  weights::TensorFile file = weights::read_safetensors(path, wanted);
  const auto drop_loss_scale = [](std::vector<nn::NamedTensor>& tensors) {
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                                 [](const auto& named) { return named.name == kLossScale; }),
                  tensors.end());
  };
  if (file.tensors.size() < wanted.size()) drop_loss_scale(wanted);
  if (file.tensors.size() > wanted.size()) drop_loss_scale(file.tensors);
  if (file.tensors.size() != wanted.size()) {
    throw FormatError(path.string(), fmt::format("the number of tensors is {}, expected {}",
                                                 file.tensors.size(), wanted.size()));
  }
  for (const nn::NamedTensor& target : wanted) {
    const at::Tensor& source = file.at(target.name);
    if (source.sizes() != target.tensor.sizes() ||
        source.scalar_type() != target.tensor.scalar_type()) {
      throw FormatError(
          path.string() + ": " + target.name,
          fmt::format("is {} {}, expected {} {}", c10::toString(source.scalar_type()),
                      c10::str(source.sizes()), c10::toString(target.tensor.scalar_type()),
                      c10::str(target.tensor.sizes())));
    }
    target.tensor.copy_(source);
  }
}

// Throws Diverged if an element is not finite. Reads each element once and makes no mask of the
// size of the tensor, so it costs little.
static void require_finite(const std::vector<nn::NamedTensor>& tensors, std::int64_t steps) {
  const at::NoGradGuard no_gradient;
  for (const nn::NamedTensor& named : tensors) {
    if (named.tensor.numel() == 0) continue;
    const auto [lowest, highest] = at::aminmax(named.tensor);  // NaN if an element is NaN
    if (!std::isfinite(lowest.item<double>()) || !std::isfinite(highest.item<double>())) {
      Divergence found;
      found.step = steps - 1;
      found.tensor = named.name;
      throw Diverged(found);
    }
  }
}

nn::Memory finite_memory(const TrainedNetwork& trained, std::int64_t steps) {
  nn::Memory memory = trained.memory();
  for (const auto& tensors : {trained.model().parameters(), trained.moments(), memory.named()}) {
    require_finite(tensors, steps);
  }
  return memory;
}

void write_checkpoint(const fs::path& folder, const net::ModelFile& description,
                      const TrainedNetwork& trained, const TrainingState& state,
                      const std::function<void()>& check) {
  const nn::Memory memory = finite_memory(trained, state.step);
  // If memory has run out, the destructor of a large JSON tree ends the process. The text is made
  // before the folder, which would stay otherwise.
  const std::string model = dump_json(net::model_file_to_json(description));
  check();
  AtomicFolder atomic(folder);
  const fs::path& temporary = atomic.temporary();
  const std::map<std::string, std::string> metadata = {{"step", std::to_string(state.step)}};
  write_file_atomically(temporary / "model.json", model);
  weights::write_safetensors(temporary / kWeights, trained.model().parameters(), metadata);
  weights::write_safetensors(temporary / kOptimizer, trained.moments(), metadata);
  weights::write_safetensors(temporary / kMemory, memory.named(), metadata);

  const std::string& vocabulary = description.vocabulary_text;
  if (!vocabulary.empty()) write_file_atomically(temporary / shard::kVocabularyFile, vocabulary);

  TrainingState saved = state;
  saved.updates = trained.updates();
  net::write_state_file(temporary, state_to_json(saved), covered_files(!vocabulary.empty()));
  atomic.sync();
  check();
  atomic.commit();
}

TrainingState read_state(const fs::path& folder) {
  const Json state = net::read_state_file(folder);
  return state_from_json(JsonObject(state, (folder / "state.json").string() + ": state"));
}

bool means_damage(const Error& error) {
  if (const auto* system = dynamic_cast<const SystemError*>(&error)) {
    const int number = system->error_number();
    // The file is absent or of another kind, or the medium no longer returns the data written to
    // it.
    return number == ENOENT || number == ENOTDIR || number == EISDIR || number == EIO ||
           number == EBADMSG || number == EUCLEAN;
  }
  return dynamic_cast<const FormatError*>(&error) != nullptr &&
         dynamic_cast<const UnknownVersion*>(&error) == nullptr;
}

std::string damage(const fs::path& folder) {
  try {
    net::check_files(folder, covered_files(net::covers(folder, shard::kVocabularyFile)));
    return "";
  } catch (const Error& error) {
    if (!means_damage(error)) throw;
    return error.what();
  }
}

void verify_checkpoint(const fs::path& folder) {
  const std::string found = damage(folder);
  if (!found.empty()) throw FormatError("", found, kRemedy);
}

void restore_best(const fs::path& run, std::int64_t step, const fs::path& checkpoint) {
  const fs::path best = run / "best";
  try {
    const std::string found = damage(best);
    if (found.empty()) return;
    for (const fs::path& other : {checkpoint, step_folder(run, step)}) {
      if (step_of(other) != step || !damage(other).empty()) continue;
      link_checkpoint(other, best);
      log_warning("{}; {} is made again from {}", found, best.string(), other.string());
      return;
    }
    log_warning("{}; no other checkpoint has the best weights, which are those of step {}", found,
                with_thousands(step));
  } catch (const Error& error) {
    log_warning("{} cannot be checked or made again: {}", best.string(), error.what());
  }
}

TrainingState read_checkpoint(const fs::path& folder, TrainedNetwork& trained, Rows rows) {
  verify_checkpoint(folder);
  TrainingState state = read_state(folder);
  const at::NoGradGuard no_gradient;
  nn::Model& model = trained.model();
  weights::load_weights(model, weights::read_safetensors(folder / kWeights, model.parameters()));
  restore(folder / kOptimizer, trained.moments());
  trained.set_updates(state.updates);
  if (rows == Rows::kSame) {
    nn::Memory memory = trained.memory();
    restore(folder / kMemory, memory.named());
    trained.set_memory(memory);
  }
  return state;
}

// Returns ", 20 steps earlier" if the steps of both are known and `complete` has fewer; else "".
static std::string distance(const fs::path& damaged, const fs::path& complete) {
  const auto lost = step_of(damaged), left = step_of(complete);
  if (!lost || !left || *lost <= *left) return "";
  return fmt::format(", {} step{} earlier", with_thousands(*lost - *left),
                     *lost - *left == 1 ? "" : "s");
}

fs::path find_resume_point(const fs::path& run) {
  std::vector<std::pair<fs::path, std::string>> passed;
  for (const fs::path& checkpoint : newest_checkpoints(run)) {
    std::string found = damage(checkpoint);
    if (!found.empty()) {
      passed.emplace_back(checkpoint, std::move(found));
      continue;
    }
    for (const auto& [damaged, reason] : passed) {
      log_warning("{}; continuing from {}{}", reason, checkpoint.string(),
                  distance(damaged, checkpoint));
    }
    return checkpoint;
  }
  if (!passed.empty()) {
    throw FormatError("", passed.front().second,
                      "no other checkpoint of the training is complete: restore one from a copy, "
                      "or start again with --force instead of --resume");
  }
  return {};
}

}  // namespace ql::train
