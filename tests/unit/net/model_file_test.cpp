// Tests model.json and presets as files, with --set.
#include "net/model_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/geometry.h"
#include "unit/complaint.h"
#include "unit/damage.h"
#include "unit/net_networks.h"

using namespace ql;
using namespace ql::net;
using namespace ql::net::testing;

namespace {

// Makes a folder that is removed with the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "ql-net.XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

const std::vector<std::string> kTrainingKeys{"batch", "steps", "learning_rate", "seed"};

constexpr const char* kPreset = R"({"format": "ql-preset", "version": 1, "about": "small",
  "network": {"architecture": "transformer-ql", "d_model": 8, "n_head": 2, "d_head": 4,
              "d_inner": 16, "scales": [1, 1], "output_layers": 1, "segment": 4, "memory": 4},
  "training": {"batch": 2, "steps": 100}})";

Preset read_with(const std::vector<std::string>& overrides) {
  const Scratch scratch;
  return read_preset(scratch.write("small.json", kPreset), overrides, kTrainingKeys);
}

// Returns the message without the scratch folder's name.
template <typename Function>
std::string message_of(const Scratch& scratch, const Function& function) {
  std::string text = ql::test::complaint(function);
  const std::string folder = scratch.folder().string() + "/";
  if (text.rfind(folder, 0) == 0) text.erase(0, folder.size());
  return text;
}

std::string message_of_preset(const std::string& text,
                              const std::vector<std::string>& overrides = {}) {
  const Scratch scratch;
  const auto path = scratch.write("small.json", text);
  return message_of(scratch, [&] { read_preset(path, overrides, kTrainingKeys); });
}

}  // namespace

TEST_CASE("read_model_file: reads what write_model_file wrote") {
  const Scratch scratch;
  ModelFile model;
  model.network = with_sizes(paper_ql());
  model.network.lengths = {8, 8, 0};
  model.network.droppath = 0.3;
  model.vocabulary = shard::VocabularyInfo{};
  model.vocabulary->size = 11492;
  model.vocabulary->hash = "0123456789abcdef0123456789abcdef";
  model.vocabulary->type = "word";
  model.training = Json::object({{"batch", 128}});
  model.provenance = Json::object({{"tool", "qltrain"}});
  const Json json = model_file_to_json(model);
  const auto path = scratch.write("model.json", dump_json(json));

  for (const std::filesystem::path& place : {path, scratch.folder()}) {
    const ModelFile found = read_model_file(place);
    CHECK(model_file_to_json(found) == json);
    CHECK(found.network.lengths == model.network.lengths);
    REQUIRE(found.vocabulary.has_value());
    CHECK(*found.vocabulary == *model.vocabulary);
  }
}

TEST_CASE("read_model_file: a model file without vocabulary, training or provenance") {
  const Scratch scratch;
  Json json = Json::object({{"format", "ql-model"}, {"version", 1}});
  Network network = with_sizes(xl(2));
  network.lengths.segment = 4;
  json["network"] = network_to_json(network);
  const ModelFile found = read_model_file(scratch.write("model.json", dump_json(json)));
  CHECK_FALSE(found.vocabulary.has_value());
  CHECK(found.training == Json::object());
  CHECK(found.provenance == Json::object());
}

TEST_CASE("read_model_file: other formats, versions and folders are refused") {
  const Scratch scratch;
  const auto said = [&](const std::string& text) {
    const auto path = scratch.write("model.json", text);
    return message_of(scratch, [&] { read_model_file(path); });
  };
  CHECK(said(R"({"format": "ql-preset", "version": 1})") ==
        "model.json: format is 'ql-preset', expected 'ql-model'");
  CHECK(
      said(R"({"format": "ql-model", "version": 2})") ==
      "model.json: version is 2, but this program reads version 1; use the release that wrote the "
      "file");
  CHECK(said(R"({"format": "ql-model", "version": 1})") ==
        "model.json: the key 'network' is missing");
  CHECK(said("[]") == "model.json: expected an object, found an array");
  std::filesystem::remove(scratch.folder() / "model.json");
  CHECK_THROWS_WITH_AS(read_model_file(scratch.folder()), doctest::Contains("give RUN/best"),
                       Error);
  std::filesystem::create_directory(scratch.folder() / "best");
  scratch.write("best/model.json", "{}");
  CHECK_THROWS_WITH_AS(read_model_file(scratch.folder()),
                       doctest::Contains((scratch.folder() / "best").c_str()), Error);
}

TEST_CASE("read_preset: --set changes a preset's network and training") {
  CHECK(read_with({}).network.scales == std::vector<std::int64_t>{1, 1});
  CHECK(read_with({}).about == "small");
  const Preset preset =
      read_with({"dropout=0.2", "scales=2,3,1", "rate=2", "segment=8", "pre_lnorm=false",
                 "pool=mean", "steps=10k", "seed=7", "learning_rate=2.5e-4", "steps=20k"});
  CHECK(preset.network.dropout == 0.2);
  CHECK(preset.network.scales == std::vector<std::int64_t>{2, 3, 1});
  CHECK(preset.network.lengths == Lengths{8, 4, 0});
  CHECK_FALSE(preset.network.pre_lnorm);
  CHECK(preset.network.pool == Pool::kMean);
  CHECK(preset.training == parse_json(R"({"batch": 2, "steps": 20000, "seed": 7,
                                          "learning_rate": 2.5e-4})",
                                      ""));
  CHECK(read_with({"dropout=.25"}).network.dropout == 0.25);
  CHECK(read_with({"learning_rate=.5"}).training["learning_rate"] == 0.5);
  // null brings back the value of a preset without the key.
  CHECK(read_with({"dropout=0.2", "dropout=null"}).network.dropout == 0.0);
  CHECK_FALSE(read_with({"seed=7", "seed=null"}).training.contains("seed"));
  CHECK(read_with({"attention_window=8", "attention_dilation=1,4"}).network.attention_dilation ==
        std::vector<std::int64_t>{1, 4});
  CHECK(read_with({"scales=[2, 3]"}).network.scales == std::vector<std::int64_t>{2, 3});
  CHECK(read_with({"scales=4"}).network.scales == std::vector<std::int64_t>{4});
  CHECK(read_with({"architecture=xl", "scales=4", "output_layers=0"}).network.architecture ==
        Architecture::kTransformerXl);
}

TEST_CASE("read_preset: --set with a wrong key or value") {
  CHECK(message_of_preset(kPreset, {"droput=0.2"}) ==
        "--set droput=0.2: unknown key 'droput'; did you mean 'dropout'?");
  CHECK(message_of_preset(kPreset, {"zzzzzz=1"}) ==
        "--set zzzzzz=1: unknown key 'zzzzzz'; ql-checkpoint(5) lists the keys");
  CHECK(message_of_preset(kPreset, {"dropout"}) ==
        "--set dropout: expected KEY=VALUE; for example --set dropout=0.2");
  CHECK(message_of_preset(kPreset, {"=3"}) ==
        "--set =3: expected KEY=VALUE; for example --set dropout=0.2");
  CHECK(message_of_preset(kPreset, {"dropout=high"}) ==
        "small.json with --set: network: dropout: expected a number, found a string");
  CHECK(message_of_preset(kPreset, {"dropout="}) ==
        "small.json with --set: network: dropout: expected a number, found a string");
  CHECK(message_of_preset(kPreset, {"segment=5"}).find("nearest valid: segment 4 or 6") !=
        std::string::npos);
  CHECK_THROWS_AS(read_with({"droput=0.2"}), UsageError);
}

TEST_CASE("read_preset: damaged presets are refused") {
  CHECK(message_of_preset(R"({"format": "ql-preset", "version": 1, "netwrk": {}})") ==
        "small.json: unknown key 'netwrk'; did you mean 'network'?");
  CHECK(message_of_preset(R"({"format": "ql-preset", "version": 1})") ==
        "small.json: the key 'network' is missing");
  CHECK(message_of_preset(R"({"format": "ql-preset", "version": 1, "network": []})") ==
        "small.json: network: expected an object, found an array");
  CHECK(message_of_preset(R"({"format": "ql-preset", "version": 1, "network": {},
                              "training": 3})") ==
        "small.json: training: expected an object, found a whole number");
}

// model.json has no checksum of its own; in a checkpoint, state.json has it.
TEST_CASE("no damage of any kind to a model.json gives a network that cannot be") {
  const Scratch scratch;
  ModelFile model;
  model.network = read_with({}).network;
  model.training = model.provenance = Json::object();
  const std::string good = dump_json(model_file_to_json(model));
  for (const auto& [what, bytes] : ql::test::Damages(good, 500)) {
    CAPTURE(what);
    const std::filesystem::path path = scratch.write("model.json", bytes);
    try {
      const Network network = read_model_file(path).network;
      CHECK_NOTHROW(network.check());
      CHECK_NOTHROW(make_geometry(network, network.lengths));
    } catch (const Error&) {
      // The damage is refused, as it should be.
    }
  }
}
