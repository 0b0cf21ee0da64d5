// Reads and writes checkpoint folders without LibTorch: model.json, state.json, presets, and the
// keys of a network. ql-checkpoint(5) describes the formats.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "net/geometry.h"
#include "net/network.h"
#include "shard/manifest.h"

namespace ql::net {

// Does the same as network_from_json(), but adds the conflicts of the network and of its lengths of
// training to `conflicts`.
Network network_from_json(const JsonObject& json, Conflicts& conflicts);

// Reads the configuration that a popular Python library stores with Transformer-XL weights
// (config.json with the keys of its TransfoXLConfig).

// Returns true for such a configuration: its "model_type" is "transfo-xl".
bool is_public_config(const Json& json);

// Returns the network: architecture transformer-xl, memory mem_len, segment tgt_len (newer files
// lack it: then 128, the library's former default). Keys about generation and about the library
// itself are ignored. Throws ConfigError that names the key for features that this network does not
// have, such as another attention, and for lengths that do not fit.
Network network_from_public_config(const JsonObject& json);

// These read and write model.json of a checkpoint folder, and read presets.

// {"format": "ql-model", "version": 1, "network": {...}, "vocabulary": {...}, "training": {...},
//  "provenance": {...}}
struct ModelFile {
  Network network;
  std::optional<shard::VocabularyInfo> vocabulary;  // of the training data
  // This is the content of the vocabulary's file, which a checkpoint has next to model.json; "" if
  // it is unknown. Reading leaves it empty.
  std::string vocabulary_text;
  Json training = Json::object();  // lib/train's configuration, as resolved
  Json provenance = Json::object();
};

// Throws Error about `name` for a folder without model.safetensors, and says how weights in other
// files are converted.
void require_weights(const std::filesystem::path& folder, const std::string& name);

// `path` is a checkpoint folder or its model.json.
ModelFile read_model_file(const std::filesystem::path& path);
Json model_file_to_json(const ModelFile& model);

// {"format": "ql-preset", "version": 1, "about": "...", "network": {...}, "training": {...}}
struct Preset {
  std::string about;
  Network network;
  Json training = Json::object();
};
// Reads a preset, or makes one from a checkpoint folder or its model.json, without the vocabulary's
// size, which the data decide, and the division of the work, which the machine decides. `network`
// of a preset may lack vocab_size. `overrides` are KEY=VALUE pairs of --set: a key of "network" or
// of "training" (no name is in both), and the value as JSON or plain text. An unknown key is a
// UsageError with the nearest one; `training_keys` are the keys that lib/train knows.
Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys);
// Does the same, but adds the network's conflicts to `conflicts`. A network with conflicts must not
// be used further.
Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys, Conflicts& conflicts);

// state.json of a checkpoint folder has the state of the training, and the hashes of the other
// files. ql-checkpoint(5) describes the format.

// Returns the object "state". Throws FormatError unless the file has its format and checksum,
// UnknownVersion for another release's, and SystemError when it cannot be read.
Json read_state_file(const std::filesystem::path& folder);

// Throws as read_state_file() does, also for each missing file, and FormatError with `remedy` for a
// file whose hash differs from the one in state.json.
void check_files(const std::filesystem::path& folder, const std::vector<std::string>& files,
                 const std::string& remedy = "");

// Returns true when state.json has a hash of this file. Throws as read_state_file() does.
bool covers(const std::filesystem::path& folder, const std::string& file);

// Writes state.json with the hashes of existing files. `state` is the text of an object, as
// dump_json() makes it. A stop signal does not interrupt it, because a checkpoint is written after
// such a signal.
void write_state_file(const std::filesystem::path& folder, const std::string& state,
                      const std::vector<std::string>& files);

}  // namespace ql::net
