#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "base/number.h"
#include "net/model_file.h"
#include "net/network_keys_internal.h"

namespace ql::net {
namespace {

constexpr int kPresetVersion = 1;

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "10k" and "2,2" as they are typed for options; otherwise JSON, otherwise a text.
Json value_from_text(const std::string& key, const std::string& text) {
  if (network_to_json(Network()).value(key, Json()).is_array()) {
    if (const auto list = parse_integer_list(text)) return *list;
  }
  if (const auto integer = parse_integer(text)) return *integer;
  try {
    return parse_json(text, "--set " + key);
  } catch (const FormatError&) {
    return text;
  }
}

void apply_override(const std::string& assignment, const std::vector<std::string>& training_keys,
                    Json& network, Json& training) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UsageError("--set " + assignment, "expected KEY=VALUE", "for example --set dropout=0.2");
  }
  const std::string key = assignment.substr(0, equals);
  const bool of_network = contains(network_keys(), key);
  if (!of_network && !contains(training_keys, key)) {
    std::vector<std::string> known = network_keys();
    known.insert(known.end(), training_keys.begin(), training_keys.end());
    const std::string near = nearest(key, known);
    throw UsageError(
        "--set " + assignment, fmt::format("unknown key '{}'", key),
        near.empty() ? "ql-checkpoint(5) lists the keys" : fmt::format("did you mean '{}'?", near));
  }
  (of_network ? network : training)[key] = value_from_text(key, assignment.substr(equals + 1));
}

// Makes a preset of a checkpoint. It leaves out what the data and the machine decide.
void preset_from_checkpoint(Json& json, const std::filesystem::path& file) {
  const ModelFile model = read_model_file(file);
  Json network = network_to_json(model.network), training = model.training;
  network.erase("vocab_size");
  for (const char* key : {"slices", "passes"}) training.erase(key);
  json = {{"format", "ql-preset"},
          {"version", kPresetVersion},
          {"network", network},
          {"training", training}};
}

}  // namespace

Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys) {
  Conflicts conflicts;
  Preset preset = read_preset(path, overrides, training_keys, conflicts);
  conflicts.raise();
  return preset;
}

Preset read_preset(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& training_keys, Conflicts& conflicts) {
  const std::filesystem::path file = model_file_of(path);
  Json json = read_json(file);
  if (json.is_object() && json.value("format", Json()) == "ql-model") {
    preset_from_checkpoint(json, file);
  }
  const JsonObject object(json, file.string());
  object.check_format("ql-preset", kPresetVersion);
  object.refuse_unknown({"format", "version", "about", "network", "training"});
  Preset preset;
  preset.about = object.has("about") ? object.text("about") : "";
  object.object("network");
  Json network = object.at("network");
  preset.training = Json::object();
  if (object.has("training")) {
    object.object("training");
    preset.training = object.at("training");
  }
  for (const std::string& assignment : overrides) {
    apply_override(assignment, training_keys, network, preset.training);
  }
  const std::string where = file.string() + (overrides.empty() ? "" : " with --set");
  preset.network = network_from_json(JsonObject(network, where + ": network"), conflicts);
  return preset;
}

}  // namespace ql::net
