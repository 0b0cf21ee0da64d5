#include "train/checkpoint.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "nn/safetensors.h"
#include "nn/weights.h"
#include "shard/raw_file.h"
#include "train/divergence.h"

namespace ql::train {
namespace {

constexpr const char* kFormat = "ql-training-state";
constexpr std::int64_t kVersion = 1;
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kMemory = "memory.safetensors";
constexpr const char* kCovered[] = {"model.json", kWeights, kOptimizer, kMemory};

// --force would remove the good checkpoints.
constexpr const char* kCure =
    "restore the folder from a copy; --resume goes on from the newest checkpoint that is whole";

// No damage: the file may be good for another program.
class UnknownVersion : public FormatError {
 public:
  using FormatError::FormatError;
};

// By pieces: a mapped file would count as memory of the process, twice the weights of it. A signal
// does not end it: a checkpoint is written when one has come.
std::string file_hash(const fs::path& path) {
  const shard::RandomAccessFile file(path);
  ContentHasher hasher;
  std::string piece(std::size_t{1} << 20, '\0');
  for (std::int64_t offset = 0; offset < file.size();) {
    const std::size_t part = std::min(piece.size(), static_cast<std::size_t>(file.size() - offset));
    file.read(offset, piece.data(), part);
    hasher.update(piece.data(), part);
    offset += static_cast<std::int64_t>(part);
  }
  return hasher.digest();
}

// The checksum of state.json covers the file as it is without the checksum.
std::string state_checksum(Json json) {
  json.erase("checksum");
  return content_hash(dump_json(json));
}

Json read_verified_json(const fs::path& path) {
  Json json = read_json(path);
  const JsonObject object(json, path.string());
  if (object.text("format") != kFormat) {
    throw FormatError(path.string(), fmt::format("\"format\" is \"{}\", expected \"{}\"",
                                                 object.text("format"), kFormat));
  }
  if (object.integer("version") != kVersion) {
    throw UnknownVersion(path.string(),
                         fmt::format("version {} is unknown, this program reads version {}",
                                     object.integer("version"), kVersion),
                         "use the program that wrote it, or a newer one");
  }
  object.refuse_unknown({"format", "version", "state", "files", "checksum"});
  if (object.text("checksum") != state_checksum(json)) {
    throw FormatError(path.string(), "checksum mismatch: the file is damaged");
  }
  return json;
}

// Throws FormatError for a file that is not as state.json says, SystemError for one that is
// missing.
void compare_files(const fs::path& folder) {
  const fs::path path = folder / "state.json";
  const Json json = read_verified_json(path);
  const JsonObject files = JsonObject(json, path.string()).object("files");
  for (const char* name : kCovered) {
    if (file_hash(folder / name) != files.text(name)) {
      throw FormatError((folder / name).string(),
                        "checksum mismatch with state.json: the file is damaged");
    }
  }
}

// Copies every tensor of `wanted` from the file, which must hold exactly these.
void restore(const fs::path& path, const std::vector<nn::NamedTensor>& wanted) {
  const nn::TensorFile file = nn::read_safetensors(path);
  if (file.tensors.size() != wanted.size()) {
    throw FormatError(path.string(), fmt::format("has {} tensors, expected {}", file.tensors.size(),
                                                 wanted.size()));
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

// Reads every number once and makes no tensor of that size: little beside writing them.
void require_finite(const std::vector<nn::NamedTensor>& tensors, std::int64_t steps) {
  const at::NoGradGuard no_gradient;
  for (const nn::NamedTensor& named : tensors) {
    if (named.tensor.numel() == 0) {
      continue;
    }
    const auto [lowest, highest] = at::aminmax(named.tensor);  // NaN if there is one
    if (!std::isfinite(lowest.item<double>()) || !std::isfinite(highest.item<double>())) {
      Divergence found;
      found.step = steps - 1;
      found.tensor = named.name;
      throw Diverged(found);
    }
  }
}

}  // namespace

nn::Memory finite_memory(const Trainee& learner, std::int64_t steps) {
  nn::Memory memory = learner.memory();
  for (const auto& tensors : {learner.model().parameters(), learner.moments(), memory.states}) {
    require_finite(tensors, steps);
  }
  return memory;
}

void write_checkpoint(const fs::path& folder, const net::ModelFile& description,
                      const Trainee& learner, const TrainingState& state) {
  const nn::Memory memory = finite_memory(learner, state.step);
  AtomicFolder atomic(folder);
  const fs::path& temporary = atomic.temporary();
  const std::map<std::string, std::string> metadata = {{"step", std::to_string(state.step)}};
  write_file_atomically(temporary / "model.json", dump_json(net::model_file_to_json(description)));
  nn::write_safetensors(temporary / kWeights, learner.model().parameters(), metadata);
  nn::write_safetensors(temporary / kOptimizer, learner.moments(), metadata);
  nn::write_safetensors(temporary / kMemory, memory.states, metadata);

  TrainingState saved = state;
  saved.updates = learner.updates();
  Json json = {{"format", kFormat}, {"version", kVersion}, {"state", state_to_json(saved)}};
  for (const char* name : kCovered) {
    json["files"][name] = file_hash(temporary / name);
  }
  json["checksum"] = state_checksum(json);
  write_file_atomically(temporary / "state.json", dump_json(json));
  atomic.commit();
}

TrainingState read_state(const fs::path& folder) {
  const fs::path path = folder / "state.json";
  const Json json = read_verified_json(path);
  return state_from_json(JsonObject(json, path.string()).object("state"));
}

bool tells_damage(const Error& error) {
  if (const auto* system = dynamic_cast<const SystemError*>(&error)) {
    const int number = system->error_number();
    // Absent, another kind of file, or a medium that no longer gives what was written.
    return number == ENOENT || number == ENOTDIR || number == EISDIR || number == EIO ||
           number == EBADMSG || number == EUCLEAN;
  }
  return dynamic_cast<const FormatError*>(&error) != nullptr &&
         dynamic_cast<const UnknownVersion*>(&error) == nullptr;
}

std::string damage(const fs::path& folder) {
  try {
    compare_files(folder);
    return "";
  } catch (const Error& error) {
    if (!tells_damage(error)) {
      throw;
    }
    return error.what();
  }
}

void verify_checkpoint(const fs::path& folder) {
  if (const std::string found = damage(folder); !found.empty()) {
    throw FormatError("", found, kCure);
  }
}

TrainingState read_checkpoint(const fs::path& folder, Trainee& learner, Rows rows) {
  verify_checkpoint(folder);
  TrainingState state = read_state(folder);
  const at::NoGradGuard no_gradient;
  nn::load_weights(learner.model(), nn::read_safetensors(folder / kWeights));
  restore(folder / kOptimizer, learner.moments());
  learner.set_updates(state.updates);
  if (rows == Rows::kSame) {
    nn::Memory memory = learner.memory();
    restore(folder / kMemory, memory.states);
    learner.set_memory(memory);
  }
  return state;
}

}  // namespace ql::train
