// Implements reading and writing of model.json and state.json, and reading of presets and of
// config.json of Hugging Face Transformers (TransfoXLConfig).

#include "net/model_file.h"

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/file.h"

namespace ql::net {

constexpr const char* kFromData = "auto";

static void find_conflicts_with_lengths(const Network& network, const std::string& where,
                                        Conflicts& conflicts) {
  find_conflicts(network, where, conflicts);
  find_conflicts(network, network.lengths, where, conflicts);
}

Network network_from_json(const JsonObject& json) {
  Conflicts conflicts;
  Network network = network_from_json(json, conflicts);
  conflicts.raise();
  return network;
}

Network network_from_json(const JsonObject& json, Conflicts& conflicts) {
  Json plain = json.json();
  const bool cutoffs_from_data = json.has("cutoffs") && json.at("cutoffs") == kFromData;
  if (cutoffs_from_data) plain.erase("cutoffs");
  auto network = read_keys<Network>({plain, json.where()}, conflicts);
  network.cutoffs_from_data = cutoffs_from_data;
  if (json.has("d_embed")) {
    json.integer("d_embed", 1);  // 0 stands for d_model, but not in files
  }
  find_conflicts_with_lengths(network, json.where(), conflicts);
  return network;
}

Json network_to_json(const Network& network) {
  Network resolved = network;
  resolved.d_embed = network.embedding_width();
  resolved.tie_projs = network.resolved_tie_projs();
  Json json = write_keys(resolved);
  if (network.cutoffs_from_data) {
    json["cutoffs"] = kFromData;
    // The number of clusters is not known yet.
    if (network.tie_projs.empty()) {
      json.erase("tie_projs");
    } else {
      json["tie_projs"] = network.tie_projs;
    }
  }
  return json;
}

constexpr std::int64_t kFormerSegment = 128;

static void require(const JsonObject& json, const char* key, const Json& value, const char* can) {
  if (json.has(key) && json.at(key) != value) {
    throw ConfigError(fmt::format("{}: {}", json.where(), key),
                      fmt::format("is {}, but only {} is supported", json.at(key).dump(), can));
  }
}

bool is_public_config(const Json& json) {
  return json.is_object() && json.contains("model_type") && json["model_type"] == "transfo-xl";
}

Network network_from_public_config(const JsonObject& json) {
  require(json, "attn_type", 0, "0 (relative attention)");
  require(json, "layer_norm_epsilon", 1e-5, "1e-5");
  require(json, "tie_word_embeddings", true, "true (tied embeddings)");
  require(json, "tie_weight", true, "true (tied embeddings)");

  Network network;
  network.architecture = Architecture::kTransformerXl;
  network.scales = {0};
  network.pre_lnorm = false;
  network.untie_r = true;
  network.lengths.segment = kFormerSegment;
  const auto read = key_reader(json);
  read("vocab_size", network.vocab_size, {}, kRequired);
  read("d_model", network.d_model, {}, kRequired);
  read("n_head", network.n_head, {}, kRequired);
  read("d_head", network.d_head, {}, kRequired);
  read("d_inner", network.d_inner, {}, kRequired);
  read("n_layer", network.scales.front(), {}, kRequired);
  read("pre_lnorm", network.pre_lnorm);
  read("untie_r", network.untie_r);
  read("clamp_len", network.clamp_len);
  network.clamp_len = network.clamp_len > 0 ? network.clamp_len : -1;
  read("same_length", network.same_length);
  read("tgt_len", network.lengths.segment);
  read("mem_len", network.lengths.memory);
  read("dropout", network.dropout);
  read("dropatt", network.dropatt);
  read("init_std", network.init_std);
  read("proj_init_std", network.proj_init_std);
  // Hugging Face Transformers uses the cutoffs for any value of the key "adaptive".
  read("cutoffs", network.cutoffs);
  read("div_val", network.div_val);
  read("d_embed", network.d_embed);
  bool share = true;
  read("proj_share_all_but_first", share);
  network.tie_projs.assign(network.cutoffs.size() + 1, share);
  network.tie_projs.front() = false;
  read("tie_projs", network.tie_projs);
  Conflicts conflicts;
  find_conflicts_with_lengths(network, json.where(), conflicts);
  conflicts.raise();
  return network;
}

constexpr int kModelVersion = 1;
constexpr const char* kConversion =
    "convert the weights to model.safetensors as PUBLISHED WEIGHTS in ql-checkpoint(5) says";

// Returns the name of a file with published weights that must be converted first (PyTorch's, or an
// index of several files), or "" if the folder has no such file.
static std::string unconverted_weights(const std::filesystem::path& folder) {
  std::error_code unknown;
  for (const char* name :
       {"pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json"}) {
    if (std::filesystem::exists(folder / name, unknown)) return name;
  }
  return "";
}

// Returns the model.json of a checkpoint folder, or the config.json of a folder with published
// weights, and any other path unchanged. Throws Error for a folder with neither. The error suggests
// a checkpoint, or what published weights lack.
static std::filesystem::path model_file_of(const std::filesystem::path& path) {
  std::error_code unknown;  // read_json has a better error for an unreachable path
  if (path.extension() == ".safetensors" && std::filesystem::is_regular_file(path, unknown)) {
    throw Error(path.string(), "is a file of weights, not a checkpoint",
                "give its folder: " + folder_of(path).string());
  }
  if (!std::filesystem::is_directory(path, unknown)) return path;
  for (const char* name : {"model.json", "config.json"}) {
    std::filesystem::path file = path / name;
    if (std::filesystem::exists(file, unknown)) return file;
  }
  const bool run = std::filesystem::exists(path / "best" / "model.json", unknown);
  if (const std::string found = unconverted_weights(path); !found.empty()) {
    throw Error(
        path.string(), fmt::format("there is {}, but neither model.json nor config.json", found),
        fmt::format("put the model's config.json into the same folder, and {}", kConversion));
  }
  std::string remedy = "give RUN/best or RUN/last of qltrain -o RUN";
  if (run) remedy = "give the best checkpoint of this run: " + (path / "best").string();
  if (std::filesystem::exists(path / "model.safetensors", unknown)) {
    remedy = "put the model.json or config.json of these weights into the same folder";
  }
  throw Error(path.string(), "is not a checkpoint: model.json is missing", remedy);
}

std::filesystem::path checkpoint_folder(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path) ? path : folder_of(path);
}

std::vector<std::string> checkpoint_files(const std::filesystem::path& path) {
  std::error_code absent;
  const bool is_folder = std::filesystem::is_directory(path, absent);
  const std::string name = path.filename().string();
  if (!is_folder && name != "model.json" && name != "config.json") return {path.string()};
  const std::filesystem::path folder = is_folder ? path : folder_of(path);
  std::vector<std::string> files;
  for (const char* file :
       {"model.json", "config.json", "model.safetensors", "state.json", shard::kVocabularyFile}) {
    files.push_back((folder / file).string());
  }
  return files;
}

void require_weights(const std::filesystem::path& folder, const std::string& name) {
  if (std::filesystem::exists(folder / "model.safetensors")) return;
  const std::string found = unconverted_weights(folder);
  throw Error(name,
              found.empty() ? "the checkpoint has no weights (model.safetensors)"
                            : fmt::format("there is {}, but model.safetensors is expected", found),
              found.empty() ? "give a folder that qltrain wrote, such as RUN/best" : kConversion);
}

static bool has_format(const Json& json, const char* format) {
  return json.is_object() && json.value("format", Json()) == format;
}

// Reads a file that describes a network.
static Json read_network_file(const std::filesystem::path& file) {
  Json json = read_json(file);
  const bool known = json.is_object() && (json.contains("format") || is_public_config(json));
  if (file.filename() == "config.json" && !known) {
    throw FormatError(
        file.string(), "expected \"model_type\": \"transfo-xl\"",
        "a checkpoint folder has a model.json or the config.json of a Transformer-XL");
  }
  return json;
}

// Reads model.json, or a config.json, which describes only the network, so the other members keep
// their defaults.
static ModelFile model_from_json(const JsonObject& object) {
  ModelFile model;
  if (is_public_config(object.json())) {
    model.network = network_from_public_config(object);
    return model;
  }
  object.check_format("ql-model", kModelVersion);
  model.network = network_from_json(object.object("network"));
  if (object.has("vocabulary")) {
    model.vocabulary = shard::vocabulary_info_from_json(object.object("vocabulary"));
  }
  if (object.has("training")) model.training = object.object("training").json();
  if (object.has("provenance")) model.provenance = object.at("provenance");
  return model;
}

ModelFile read_model_file(const std::filesystem::path& path) {
  const std::filesystem::path file = model_file_of(path);
  return model_from_json({read_network_file(file), file.string()});
}

Json model_file_to_json(const ModelFile& model) {
  Json json = Json::object();
  json["format"] = "ql-model";
  json["version"] = kModelVersion;
  json["network"] = network_to_json(model.network);
  if (model.vocabulary) json["vocabulary"] = shard::vocabulary_info_to_json(*model.vocabulary);
  json["training"] = model.training;
  json["provenance"] = model.provenance;
  return json;
}

constexpr int kPresetVersion = 1;

static bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Parses numbers such as "10k" and ".5" as in options. If the key holds a list, parses texts such
// as "2,2", too. Any other text is parsed as JSON, and is a string if it is not valid JSON.
static Json value_from_text(const std::string& key, const std::string& text) {
  if (network_to_json(Network()).value(key, Json()).is_array()) {
    if (const auto list = parse_integer_list(text)) return *list;
  }
  if (const auto integer = parse_integer(text)) return *integer;
  try {
    return parse_json(text, "--set " + key);
  } catch (const FormatError&) {
    if (const auto real = parse_real(text)) return *real;
    return text;
  }
}

static void apply_override(const std::string& assignment,
                           const std::vector<std::string>& training_keys, Json& network,
                           Json& training) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UsageError("--set " + assignment, "expected KEY=VALUE", "for example --set dropout=0.2");
  }
  const std::string key = assignment.substr(0, equals);
  std::vector<std::string> known = key_names<Network>();
  const bool of_network = contains(known, key);
  if (!of_network && !contains(training_keys, key)) {
    known.insert(known.end(), training_keys.begin(), training_keys.end());
    const std::string near = nearest(key, known);
    throw UsageError(
        "--set " + assignment, fmt::format("unknown key '{}'", key),
        near.empty() ? "ql-checkpoint(5) lists the keys" : fmt::format("did you mean '{}'?", near));
  }
  Json value = value_from_text(key, assignment.substr(equals + 1));
  Json& part = of_network ? network : training;
  if (value.is_null()) {
    part.erase(key);
  } else {
    part[key] = std::move(value);
  }
}

Json preset_to_json(const Preset& preset) {
  Json network = network_to_json(preset.network);
  network.erase("vocab_size");
  Network defaults = preset.network;
  defaults.d_embed = 0;
  defaults.tie_projs.clear();
  const Json by_default = network_to_json(defaults);
  for (const char* key : {"d_embed", "tie_projs"}) {
    if (network.value(key, Json()) == by_default.value(key, Json())) network.erase(key);
  }
  Json json = {{"format", "ql-preset"}, {"version", kPresetVersion}};
  if (!preset.about.empty()) json["about"] = preset.about;
  json["network"] = network;
  json["training"] = preset.training;
  return json;
}

Preset preset_of(const ModelFile& model) {
  Json training = model.training;
  for (const char* key : {"slices", "passes"}) training.erase(key);
  return {"", model.network, training};
}

Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys) {
  Conflicts conflicts;
  Preset preset = read_preset(path, overrides, training_keys, conflicts);
  conflicts.raise();
  return preset;
}

// Reads a preset from the parsed `json` of `file`.
static Preset preset_from_json(const Json& json, const std::string& file,
                               const std::vector<std::string>& overrides,
                               const std::vector<std::string>& training_keys,
                               Conflicts& conflicts) {
  const JsonObject object(json, file);
  object.check_format("ql-preset", kPresetVersion);
  object.refuse_unknown({"format", "version", "about", "network", "training"});
  Preset preset;
  preset.about = object.has("about") ? object.text("about") : "";
  Json network = object.object("network").json();
  if (object.has("training")) preset.training = object.object("training").json();
  for (const std::string& assignment : overrides) {
    apply_override(assignment, training_keys, network, preset.training);
  }
  const std::string where = file + (overrides.empty() ? "" : " with --set");
  preset.network = network_from_json(JsonObject(network, where + ": network"), conflicts);
  return preset;
}

Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys, Conflicts& conflicts) {
  const std::filesystem::path file = model_file_of(path);
  Json json = read_network_file(file);
  if (has_format(json, "ql-model") || is_public_config(json)) {
    json = preset_to_json(preset_of(model_from_json({json, file.string()})));
  }
  return preset_from_json(json, file.string(), overrides, training_keys, conflicts);
}

std::variant<Preset, ModelFile> read_preset_or_model(const std::filesystem::path& path) {
  const std::filesystem::path file = model_file_of(path);
  const Json json = read_network_file(file);
  if (!has_format(json, "ql-preset")) return model_from_json({json, file.string()});
  Conflicts conflicts;
  Preset preset = preset_from_json(json, file.string(), {}, {}, conflicts);
  conflicts.raise();
  return preset;
}

constexpr const char* kFormat = "ql-training-state";
constexpr std::int64_t kVersion = 1;

static fs::path state_file(const fs::path& folder) { return folder / "state.json"; }

// The file is read in pieces: weights are large, and a mapped file would count as memory of the
// process. Stop signals are ignored, because a training run that was asked to stop still writes its
// last checkpoint.
static std::string file_hash(const fs::path& path) { return RandomAccessFile(path).hash(false); }

// The checksum covers the file's text without the key "checksum".
static std::string checksum_of(Json json) {
  json.erase("checksum");
  return content_hash(dump_json(json));
}

static Json read_verified(const fs::path& folder) {
  const fs::path path = state_file(folder);
  Json json = read_json(path);
  const JsonObject object(json, path.string());
  object.check_format(kFormat, kVersion);
  object.refuse_unknown({"format", "version", "state", "files", "checksum"});
  if (object.text("checksum") != checksum_of(json)) {
    throw FormatError(path.string(), "checksum mismatch: the file is damaged or was changed");
  }
  return json;
}

Json read_state_file(const fs::path& folder) {
  return JsonObject(read_verified(folder), state_file(folder).string()).at("state");
}

void check_files(const fs::path& folder, const std::vector<std::string>& files,
                 const std::string& remedy) {
  const Json json = read_verified(folder);
  const JsonObject hashes = JsonObject(json, state_file(folder).string()).object("files");
  for (const std::string& name : files) {
    if (file_hash(folder / name) != hashes.text(name)) {
      throw FormatError((folder / name).string(),
                        "checksum mismatch with state.json: the file is damaged or was changed",
                        remedy);
    }
  }
}

bool covers(const fs::path& folder, const std::string& file) {
  return JsonObject(read_verified(folder), state_file(folder).string()).object("files").has(file);
}

void write_state_file(const fs::path& folder, const Json& state,
                      const std::vector<std::string>& files) {
  Json hashes = Json::object();
  for (const std::string& name : files) hashes[name] = file_hash(folder / name);
  Json json = {{"format", kFormat}, {"version", kVersion}, {"state", state}, {"files", hashes}};
  json["checksum"] = checksum_of(json);
  write_file_atomically(state_file(folder), dump_json(json));
}

}  // namespace ql::net
