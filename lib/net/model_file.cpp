#include "net/model_file.h"

#include <fmt/format.h>

#include "base/error.h"
#include "net/public_config_internal.h"

namespace ql::net {
namespace {

constexpr int kModelVersion = 1;
constexpr const char* kConversion =
    "convert the weights to model.safetensors as share/ql/published-weights.txt says";

// The library's configuration says nothing about the vocabulary or the training.
ModelFile read_public(const std::filesystem::path& file) {
  const Json json = read_json(file);
  if (!is_public_config(json)) {
    throw FormatError(
        file.string(), "expected \"model_type\": \"transfo-xl\"",
        "a checkpoint folder has a model.json or the config.json of a Transformer-XL");
  }
  ModelFile model;
  model.network = network_from_public_config(JsonObject(json, file.string()));
  model.training = Json::object();
  model.provenance = Json::object();
  return model;
}

}  // namespace

std::string unconverted_weights(const std::filesystem::path& folder) {
  std::error_code unknown;
  for (const char* name :
       {"pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json"}) {
    if (std::filesystem::exists(folder / name, unknown)) return name;
  }
  return "";
}

void require_weights(const std::filesystem::path& folder, const std::string& name) {
  if (std::filesystem::exists(folder / "model.safetensors")) return;
  const std::string found = unconverted_weights(folder);
  throw Error(name,
              found.empty() ? "the checkpoint has no weights (model.safetensors)"
                            : fmt::format("the weights are those of {}, and model.safetensors is "
                                          "expected",
                                          found),
              found.empty() ? "give a folder that qltrain wrote, such as RUN/best" : kConversion);
}

std::filesystem::path model_file_of(const std::filesystem::path& path) {
  std::error_code unknown;  // read_json finds better words for a path that cannot be reached
  if (!std::filesystem::is_directory(path, unknown)) return path;
  std::filesystem::path file = path / "model.json";
  if (std::filesystem::exists(file, unknown)) return file;
  const bool run = std::filesystem::exists(path / "best" / "model.json", unknown);
  if (const std::string found = unconverted_weights(path); !found.empty()) {
    throw Error(path.string(),
                fmt::format("there is {}, but neither model.json nor config.json", found),
                fmt::format("put the model's config.json beside it, and {}", kConversion));
  }
  throw Error(path.string(), "no checkpoint is there: model.json is missing",
              run ? fmt::format("give the best one of this run: {}", (path / "best").string())
                  : "give RUN/best or RUN/last of qltrain -o RUN");
}

ModelFile read_model_file(const std::filesystem::path& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown) &&
      !std::filesystem::exists(path / "model.json", unknown) &&
      std::filesystem::exists(path / "config.json", unknown)) {
    return read_public(path / "config.json");
  }
  const std::filesystem::path file = model_file_of(path);
  const Json json = read_json(file);
  const JsonObject object(json, file.string());
  object.check_format("ql-model", kModelVersion);
  ModelFile model;
  model.network = network_from_json(object.object("network"));
  if (object.has("vocabulary")) {
    model.vocabulary = shard::vocabulary_info_from_json(object.object("vocabulary"));
  }
  model.training = object.has("training") ? object.at("training") : Json::object();
  model.provenance = object.has("provenance") ? object.at("provenance") : Json::object();
  return model;
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

}  // namespace ql::net
