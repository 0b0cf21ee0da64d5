// model.json of a checkpoint folder, and presets: read without LibTorch. ql-checkpoint(5) has the
// format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/conflicts.h"
#include "net/network.h"
#include "shard/token_info.h"

namespace ql::net {

// {"format": "ql-model", "version": 1, "network": {...}, "vocabulary": {...}, "training": {...},
//  "provenance": {...}}
struct ModelFile {
  Network network;
  std::optional<shard::VocabularyInfo> vocabulary;  // of the training data
  // The vocabulary's file, which lies beside model.json in a checkpoint; "" where it is not known.
  // Reading leaves it out.
  std::string vocabulary_text;
  Json training;  // lib/train's configuration, as resolved
  Json provenance;
};

// Returns the model.json of a checkpoint folder, and any other path as it is. Throws Error for a
// folder without one, and says where the run's checkpoints are.
std::filesystem::path model_file_of(const std::filesystem::path& path);

// Returns the name of the file in which a folder has published weights that have to be converted:
// PyTorch's, or an index of several files; "" where it has none.
std::string unconverted_weights(const std::filesystem::path& folder);

// Throws Error, in the name of `name`, for a folder without model.safetensors. It says how weights
// of other files are converted.
void require_weights(const std::filesystem::path& folder, const std::string& name);

// `path` is a checkpoint folder or its model.json.
ModelFile read_model_file(const std::filesystem::path& path);
Json model_file_to_json(const ModelFile& model);

// {"format": "ql-preset", "version": 1, "about": "...", "network": {...}, "training": {...}}
struct Preset {
  std::string about;
  Network network;
  Json training;
};
// `path` is a preset, or a checkpoint folder or its model.json: then the vocabulary's size is left
// to the data, and the division of the work to the machine. `network` of a preset may leave
// vocab_size out. `overrides` are KEY=VALUE pairs of --set: a key of "network" or of "training"
// (the names do not overlap), the value as JSON or plain text. An unknown key is a UsageError with
// the nearest one; `training_keys` are the keys lib/train knows.
Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys);
// Does the same, but adds what is wrong with the network to `conflicts`; such a network is good for
// nothing else.
Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys, Conflicts& conflicts);

}  // namespace ql::net
