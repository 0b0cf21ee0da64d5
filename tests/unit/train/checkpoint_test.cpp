// Tests checkpoints: everything is restored, and every kind of damage is refused.

#include <cmath>
#include <limits>

#include "base/error.h"
#include "train/checkpoint.h"
#include "train/training_step.h"
#include "unit/complaint.h"
#include "unit/damage.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"
#include "weights/weights.h"

namespace ql::train {
namespace {

namespace fs = std::filesystem;

struct Trained {
  test::ScratchFolder scratch;
  TrainingConfig config = test::tiny_config();
  net::Network network;
  net::ModelFile description;
  TrainingState state;

  explicit Trained(const net::Network& built) : network(built) {
    test::pack(scratch / "data", test::scrambled(300, 23), 23);
    shard::MultiReader reader({(scratch / "data").string()});
    description.network = network;
    description.vocabulary = reader.vocabulary();
    description.vocabulary_text = "{\"words\": [1, 2, 3, 4, 5, 6]}\n";
    description.training = training_to_json(config);
    description.provenance = Json::object();
    Streams streams(reader, config.batch, network.lengths.segment);
    TrainedNetwork learner(network, config);
    for (std::int64_t step = 0; step < 3; ++step) learner.step(streams, step, 0.01);
    state.step = 3;
    state.updates = 3;
    state.cursor = 8;
    state.elapsed = 1.0 / 3;
    state.position = 12;
    state.validation_step = 2;
    state.best = Best{2, 3.25};
    state.since_log.loss = 0.1 + 0.2;
    state.since_log.steps = 2;
    state.since_log.gradient_norm = 1e-300;
    state.running_loss = {10.0 / 3, 42};
    state.divergences = {7, {1, 2}};
    state.data = {"data", {}, "abc", 300};
    state.validation = {"valid", std::vector<std::string>{"more"}, "def", 30};
    write_checkpoint(folder(), description, learner, state);
  }
  fs::path folder() const { return scratch / "last"; }
};

std::string refusal(const fs::path& folder, TrainedNetwork& learner) {
  return test::complaint([&] { read_checkpoint(folder, learner); });
}

}  // namespace

TEST_CASE("read_checkpoint: restores everything") {
  for (const net::Network& network :
       {test::tiny_ql(), test::tiny_xl(),
        test::tiny_compressive(net::Pool::kDilatedConvolution,
                               net::CompressionLoss::kAutoEncoding)}) {
    const Trained trained(network);
    TrainedNetwork learner(network, trained.config);
    const TrainingState state = read_checkpoint(trained.folder(), learner);
    CHECK(state_to_json(state) == state_to_json(trained.state));
    CHECK(state.since_log.loss == trained.state.since_log.loss);
    CHECK(learner.updates() == 3);

    // Writing the restored state gives the same files again.
    const fs::path again = trained.scratch / "again";
    write_checkpoint(again, trained.description, learner, state);
    for (const auto& entry : fs::directory_iterator(trained.folder())) {
      CHECK_MESSAGE(test::slurp(entry.path()) == test::slurp(again / entry.path().filename()),
                    entry.path().filename().string());
    }
    CHECK(std::distance(fs::directory_iterator(again), fs::directory_iterator()) == 6);
  }
}

TEST_CASE("verify_checkpoint: every damaged file is refused") {
  const Trained trained(test::tiny_xl());
  TrainedNetwork learner(trained.network, trained.config);
  for (const char* name : {"model.json", "model.safetensors", "optimizer.safetensors",
                           "memory.safetensors", "vocabulary.json", "state.json"}) {
    CAPTURE(std::string(name));
    const fs::path path = trained.folder() / name;
    const std::string whole = test::slurp(path);
    for (const auto& [what, bytes] : test::Damages(whole, 60)) {
      CAPTURE(what);
      test::spill(path, bytes);
      const std::string text = refusal(trained.folder(), learner);
      // Another spelling of the same values in state.json is not damage.
      const bool same = text.empty() &&
                        state_to_json(read_state(trained.folder())) == state_to_json(trained.state);
      CHECK((same || text.find(name) != std::string::npos));
    }
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 2}) {
      test::spill(path, whole.substr(0, length));
      CHECK(refusal(trained.folder(), learner).find(name) != std::string::npos);
    }
    fs::remove(path);
    CHECK(refusal(trained.folder(), learner).find(name) != std::string::npos);
    test::spill(path, whole);
  }
  CHECK(refusal(trained.folder(), learner).empty());
}

TEST_CASE("verify_checkpoint: a checkpoint without a vocabulary, as of imported ids, is complete") {
  Trained trained(test::tiny_xl());
  TrainedNetwork learner(trained.network, trained.config);
  trained.description.vocabulary_text.clear();
  write_checkpoint(trained.folder(), trained.description, learner, trained.state);
  CHECK_FALSE(fs::exists(trained.folder() / "vocabulary.json"));
  CHECK(refusal(trained.folder(), learner).empty());
}

TEST_CASE("read_weights: a flipped bit in network or weights is refused for evaluation too") {
  const Trained trained(test::tiny_xl());
  CHECK_NOTHROW(weights::load_model(trained.folder()));
  for (const char* name : {"model.json", "model.safetensors", "state.json"}) {
    const fs::path path = trained.folder() / name;
    const std::string whole = test::slurp(path);
    std::string damaged = whole;
    // The flipped bit leaves a digit a digit in JSON, and a weight a finite number.
    const std::size_t at = whole.find("\"dropout\": 0.1");
    const std::size_t place = at == std::string::npos ? whole.size() - 6 : at + 13;
    damaged[place] = static_cast<char>(damaged[place] ^ 1);
    test::spill(path, damaged);
    CHECK_THROWS_WITH_AS(weights::load_model(trained.folder()),
                         doctest::Contains("checksum mismatch"), FormatError);
    test::spill(path, whole);
  }
  // Network and weights are enough; then there is nothing to compare with.
  fs::remove(trained.folder() / "state.json");
  CHECK_NOTHROW(weights::load_model(trained.folder()));
}

TEST_CASE(
    "load_model: damage of any kind never gives evaluation another network or other weights") {
  const Trained trained(test::tiny_xl());
  const nn::Model good = weights::load_model(trained.folder());
  for (const char* name : {"model.json", "model.safetensors", "state.json"}) {
    CAPTURE(std::string(name));
    const fs::path path = trained.folder() / name;
    const std::string whole = test::slurp(path);
    for (const auto& [what, bytes] : test::Damages(whole, 40)) {
      CAPTURE(what);
      test::spill(path, bytes);
      try {
        const nn::Model loaded = weights::load_model(trained.folder());
        REQUIRE(loaded.parameters().size() == good.parameters().size());
        for (std::size_t i = 0; i < good.parameters().size(); ++i) {
          CHECK(at::equal(loaded.parameters()[i].tensor, good.parameters()[i].tensor));
        }
        CHECK(net::network_to_json(loaded.network()) == net::network_to_json(good.network()));
      } catch (const Error&) {
        // The reader refused it, as it should.
      }
    }
    test::spill(path, whole);
  }
}

TEST_CASE("read_checkpoint: a checkpoint of another network is refused, naming the tensor") {
  const Trained trained(test::tiny_xl());
  net::Network wider = trained.network;
  wider.d_inner = 48;
  TrainedNetwork learner(wider, trained.config);
  CHECK(refusal(trained.folder(), learner).find("CoreNet") != std::string::npos);

  TrainingConfig more_rows = trained.config;
  more_rows.batch = 4;
  TrainedNetwork with_more_rows(trained.network, more_rows);
  CHECK(refusal(trained.folder(), with_more_rows).find("memory.0") != std::string::npos);
  // Rows that are known to be others keep their own memory.
  CHECK(read_checkpoint(trained.folder(), with_more_rows, Rows::kOther).step == 3);
  CHECK(with_more_rows.memory().named().front().tensor.count_nonzero().item<std::int64_t>() == 0);
  CHECK(with_more_rows.updates() == 3);
}

TEST_CASE("state_from_json: reads the state that state_to_json() wrote") {
  TrainingState state = Trained(test::tiny_xl()).state;
  CHECK(state_to_json(state).contains("best") == state.best.has_value());
  state.best = Best{3, 0.1};
  state.since_best = 0;
  state.divergences.recent = {1, 2};
  state.data.name = "a \"quoted\" \n name";
  const Json json = parse_json(dump_json(state_to_json(state)), "state.json");
  CHECK(json["best"] == Json{{"step", 3}, {"loss", 0.1}});
  CHECK(json["divergences"]["recent"] == Json{1, 2});
  CHECK(state_to_json(state_from_json(JsonObject(json, "state.json"))) == json);
}

TEST_CASE("state_from_json: a state without one of its keys is refused, naming it") {
  const Json json = state_to_json(Trained(test::tiny_xl()).state);
  for (const auto& [key, value] : json.items()) {
    Json lacking = json;
    lacking.erase(key);
    const JsonObject object(lacking, "state.json");
    if (key == "best") {
      CHECK_FALSE(state_from_json(object).best);
    } else {
      const std::string said = fmt::format("state.json: the key '{}' is missing", key);
      CHECK_THROWS_WITH_AS(state_from_json(object), doctest::Contains(said.c_str()), FormatError);
    }
  }
}

TEST_CASE("write_checkpoint: values that are not finite never replace a checkpoint") {
  const Trained trained(test::tiny_xl());
  const std::string before = test::slurp(trained.folder() / "state.json");
  const auto said = [&](const char* name, double value) {
    TrainedNetwork learner(trained.network, trained.config);
    nn::Memory memory = learner.memory();
    for (const auto& tensors : {learner.model().parameters(), learner.moments(), memory.named()}) {
      for (const nn::NamedTensor& named : tensors) {
        if (named.name == name) {
          const at::NoGradGuard no_gradient;
          named.tensor.view(-1)[named.tensor.numel() / 2] = value;
        }
      }
    }
    learner.set_memory(memory);
    try {
      write_checkpoint(trained.folder(), trained.description, learner, trained.state);
    } catch (const Diverged& error) {
      CHECK(error.found().tensor == name);
      return std::string(error.what());
    }
    return std::string();
  };
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(said("word_emb.emb_layers.0.weight", std::nan("")).find("step 3: word_emb") == 0);
  CHECK_FALSE(said("layers.1.pos_ff.layer_norm.bias", -infinity).empty());
  CHECK_FALSE(said("second_moment.layers.1.pos_ff.layer_norm.bias", infinity).empty());
  CHECK_FALSE(said("memory.1", std::nan("")).empty());
  CHECK(test::slurp(trained.folder() / "state.json") == before);
  CHECK(trained.scratch.entries() == 2);  // data and checkpoint: nothing under another name
  CHECK(said("word_emb.emb_layers.0.weight", 1e30).empty());
  CHECK(test::slurp(trained.folder() / "state.json") != before);
}

TEST_CASE("read_state: another format or version is named") {
  const Trained trained(test::tiny_xl());
  const fs::path path = trained.folder() / "state.json";
  const auto said = [&](const char* key, const Json& value) {
    Json json = parse_json(test::slurp(path), "state.json");
    json[key] = value;
    test::spill(trained.scratch / "other" / "state.json", dump_json(json));
    return test::complaint<FormatError>([&] { read_state(trained.scratch / "other"); });
  };
  fs::create_directory(trained.scratch / "other");
  CHECK(said("version", 2).find("version is 2") != std::string::npos);
  CHECK(said("format", "ql-model").find("ql-training-state") != std::string::npos);
  CHECK(said("surprise", 1).find("surprise") != std::string::npos);
  CHECK(said("checksum", "0").find("checksum mismatch") != std::string::npos);
}

}  // namespace ql::train
