// Reads and writes model.json and state.json of checkpoint folders, and reads presets and other
// configurations, all without LibTorch. ql-checkpoint(5) describes the formats.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "net/geometry.h"
#include "net/network.h"
#include "shard/manifest.h"

namespace ql::net {

// Does the same as network_from_json(json), but adds the conflicts of the network and of its
// training lengths to `conflicts`, instead of throwing them.
Network network_from_json(const JsonObject& json, Conflicts& conflicts);

// These functions read the config.json that Hugging Face Transformers stores with Transformer-XL
// weights (TransfoXLConfig).

// Returns true for a TransfoXLConfig: its "model_type" is "transfo-xl".
bool is_public_config(const Json& json);

// Returns the network of a TransfoXLConfig, with architecture transformer-xl, memory mem_len and
// segment tgt_len. Newer files lack tgt_len. The segment is then 128, the former default of Hugging
// Face Transformers. Keys that do not describe the network are ignored. Throws ConfigError for
// features that struct Network does not have, such as another attention (the error names the key),
// and for values that do not fit.
Network network_from_public_config(const JsonObject& json);

// These functions read and write model.json of a checkpoint folder, and read presets.

// model.json has this form:
// {"format": "ql-model", "version": 1, "network": {...}, "vocabulary": {...}, "training": {...},
//  "provenance": {...}}
struct ModelFile {
  Network network;
  std::optional<shard::VocabularyInfo> vocabulary;  // of the training data
  // Holds the content of the vocabulary's file, which a checkpoint has next to model.json; "" if
  // the content is unknown. read_model_file() leaves this member empty.
  std::string vocabulary_text;
  Json training = Json::object();  // lib/train's configuration, defaults included
  Json provenance = Json::object();
};

// Returns the folder of a checkpoint; `path` is this folder or a file in it, such as model.json.
std::filesystem::path checkpoint_folder(const std::filesystem::path& path);

// Returns the files of a checkpoint that evaluation reads; `path` is its folder, or its model.json
// or config.json. Any other file, such as a preset, is returned alone.
std::vector<std::string> checkpoint_files(const std::filesystem::path& path);

// Throws Error about `name` for a folder without model.safetensors. If the folder has weights in
// other files, the error states how to convert them.
void require_weights(const std::filesystem::path& folder, const std::string& name);

// Reads model.json or config.json; `path` is such a file, or a folder. In a folder with both, reads
// model.json.
ModelFile read_model_file(const std::filesystem::path& path);
Json model_file_to_json(const ModelFile& model);

// A preset has this form:
// {"format": "ql-preset", "version": 1, "about": "...", "network": {...}, "training": {...}}
struct Preset {
  std::string about;
  Network network;
  Json training = Json::object();
};
// Makes a preset from a checkpoint, without the division of the work, which the machine decides.
Preset preset_of(const ModelFile& model);
// Returns the preset's file. Leaves out vocab_size, which the data decide, and keys that have
// defaults that depend on other keys.
Json preset_to_json(const Preset& preset);
// Reads a preset, or makes one from a checkpoint folder, its model.json or a config.json. A preset
// made from a checkpoint leaves out the vocabulary's size, which the data decide, and the division
// of the work, which the machine decides. `network` of a preset may lack vocab_size. `overrides`
// are KEY=VALUE pairs of --set. A key belongs to "network" or to "training" (no name is in both),
// and its value is JSON or plain text; null removes the key. Throws UsageError for an unknown key,
// and suggests the nearest one; `training_keys` are the keys that lib/train knows.
Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys);
// Reads a preset as the function above does, but adds the network's conflicts to `conflicts`
// instead of throwing them. A network with conflicts must not be used further.
Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys, Conflicts& conflicts);
// Reads the preset or checkpoint that `path` names. Reads the file once, because it may be a pipe.
std::variant<Preset, ModelFile> read_preset_or_model(const std::filesystem::path& path);

// state.json of a checkpoint folder has the state of the training run, and the hashes of the other
// files. ql-checkpoint(5) describes the format.

// Returns the object "state" of state.json. Throws FormatError for a wrong format or checksum,
// UnknownVersion for a file of another release, and SystemError when the file cannot be read.
Json read_state_file(const std::filesystem::path& folder);

// Checks the hashes of `files`. Throws the errors of read_state_file(), SystemError for a missing
// file, and FormatError with `remedy` for a file whose hash differs from its hash in state.json.
void check_files(const std::filesystem::path& folder, const std::vector<std::string>& files,
                 const std::string& remedy = "");

// Returns true when state.json has a hash of this file. Throws the errors of read_state_file().
bool covers(const std::filesystem::path& folder, const std::string& file);

// Writes state.json with the object `state` and the hashes of `files`, which must exist. A stop
// signal does not interrupt this function, because the last checkpoint is written after such a
// signal.
void write_state_file(const std::filesystem::path& folder, const Json& state,
                      const std::vector<std::string>& files);

}  // namespace ql::net
