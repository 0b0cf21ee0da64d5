// Tests the keys of a training's configuration, and the man pages that list them.

#include "train/config.h"

#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "unit/complaint.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

TrainingConfig config_from(const JsonObject& json) {
  Conflicts conflicts;
  TrainingConfig config = training_from_json(json, conflicts);
  conflicts.raise();
  return config;
}

TrainingConfig parse(const std::string& text) {
  const Json json = parse_json(text, "preset.json");
  return config_from(JsonObject(json, "preset.json: training"));
}

}  // namespace

TEST_CASE("TrainingConfig: survives its JSON") {
  TrainingConfig config = test::tiny_config();
  config.minutes = 1.5;
  config.adam.beta1 = 0.8;
  config.adam.beta2 = 0.95;
  config.adam.epsilon = 1e-6;
  config.eval_memory = 0;
  config.half_loss = true;
  config.precision = machine::Precision::kBfloat16;
  config.checkpoint_minutes = 2.5;
  config.keep_last = 3;
  config.keep_every = 1000;
  config.divergence = OnDivergence::kRollback;
  config.loss_jump = 0.5;
  config.warmup_steps = 0.05;
  config.schedule = Schedule::kInverseSquareRoot;
  config.decay_fraction = 0.5;
  config.adam.weight_decay = 0.01;
  config.adam.decay_on = DecayOn::kAll;
  const Json json = training_to_json(config);
  const TrainingConfig again = config_from(JsonObject(json, "test"));
  CHECK(training_to_json(again) == json);
  CHECK(again.eval_memory == 0);
  CHECK(again.half_loss);
  CHECK(again.precision == machine::Precision::kBfloat16);
  CHECK(again.checkpoint_minutes == 2.5);
  CHECK(again.keep_last == 3);
  CHECK(again.keep_every == 1000);
  CHECK(again.divergence == OnDivergence::kRollback);
  CHECK(again.loss_jump == 0.5);
  CHECK(again.warmup_steps == 0.05);
  CHECK(again.schedule == Schedule::kInverseSquareRoot);
  CHECK(again.decay_fraction == 0.5);
  CHECK(again.adam.weight_decay == 0.01);
  CHECK(again.adam.decay_on == DecayOn::kAll);
  CHECK(training_to_json(test::tiny_config())["warmup_steps"].dump() == "4");
  CHECK_FALSE(again.eval_segment.has_value());
  CHECK(again.adam.beta2 == 0.95);
}

TEST_CASE("training_keys: every key is known to the presets") {
  TrainingConfig config = test::tiny_config();
  config.eval_segment = config.eval_memory = config.eval_compressed_memory = 1;
  config.recons_loss_weight = 0.5;
  const Json json = training_to_json(config);
  CHECK(json.size() == training_keys().size());
  for (const std::string& key : training_keys()) CHECK_MESSAGE(json.contains(key), key);
}

TEST_CASE("ql-checkpoint(5): describes every key of network and training, and its default") {
  const std::string page = read_file(QL_TEST_DATA "/../man/ql-checkpoint.5");
  const auto compare = [&page](const char* object, const std::vector<std::string>& keys,
                               const Json& defaults, const Json& valid, const auto& read) {
    const std::size_t begin = page.find(std::string(".Ss The object ") + object);
    std::istringstream lines(page.substr(begin, page.find(".Ss", begin + 1) - begin));
    std::set<std::string> listed;
    for (std::string line; std::getline(lines, line);) {
      const std::size_t value = line.find(" Pq ");
      if (line.rfind(".It Cm ", 0) != 0 || value == std::string::npos) continue;
      const std::string key = line.substr(7, value - 7);
      std::string said = line.substr(value + 4);
      CAPTURE(key);
      CHECK(listed.insert(key).second);
      Json without = valid;
      without.erase(key);
      const JsonObject rest(without, "test");
      if (said == "required") {
        CHECK_THROWS_AS(read(rest), FormatError);
        continue;
      }
      CHECK_NOTHROW(read(rest));
      static const std::set<std::string> kOwnWords{"vocab_size", "d_embed", "tie_projs"};
      if (defaults.contains(key) && kOwnWords.count(key) == 0) {
        if (said == "Bq") said = "[]";
        if (said.find("\\-") == 0) said.erase(0, 1);
        CHECK(defaults[key] == (defaults[key].is_string() ? Json(said) : parse_json(said, key)));
      }
    }
    CHECK(listed == std::set<std::string>(keys.begin(), keys.end()));
  };
  compare("network", key_names<net::Network>(), net::network_to_json({}),
          net::network_to_json(test::tiny_xl()),
          [](const JsonObject& json) { return net::network_from_json(json); });
  compare("training", training_keys(), training_to_json({}), training_to_json(test::tiny_config()),
          config_from);
}

TEST_CASE("ql-checkpoint(5): describes every value of a key that has names") {
  const std::string page = read_file(QL_TEST_DATA "/../man/ql-checkpoint.5");
  const auto compare = [&page](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      std::size_t entries = 0;
      for (const char* macro : {"Cm ", "Qq ", " , "}) {
        for (const char* end : {"\n", " "}) entries += page.find(macro + name + end) != page.npos;
      }
      CHECK_MESSAGE(entries > 0, name);
    }
  };
  compare(all_names<net::Architecture>());
  compare(all_names<net::Pool>());
  compare(all_names<net::CompressionLoss>());
  compare(all_names<net::Encoding>());
  compare(all_names<net::Attention>());
  compare(all_names<Schedule>());
  compare(all_names<DecayOn>());
  compare(all_names<OnDivergence>());
  compare(all_names<machine::Precision>());
}

TEST_CASE("training_from_json: defaults, and keys without one") {
  const TrainingConfig config = parse(R"({"batch": 2, "steps": 3, "learning_rate": 0.1})");
  CHECK(config.adam.beta1 == 0.9);
  CHECK(config.clip == 0);
  CHECK(config.checkpoint_minutes == 0);
  CHECK(config.keep_last == 1);
  CHECK(config.keep_every == 0);
  CHECK(config.divergence == OnDivergence::kStop);
  CHECK_FALSE(config.half_loss);
  CHECK_THROWS_AS(parse(R"({"batch": 2, "steps": 3})"), FormatError);
}

TEST_CASE("training_from_json: impossible values name the key and the remedy") {
  const auto refused = [](const char* key, const char* value) {
    const std::string text = std::string(R"({"batch": 2, "steps": 3, "learning_rate": 0.1, ")") +
                             key + "\": " + value + "}";
    std::string replaced = text;
    for (const char* twice : {"\"batch\": 2, ", "\"steps\": 3, ", "\"learning_rate\": 0.1, "}) {
      if (std::string(twice).find(key) == 1) {
        replaced.erase(replaced.find(twice), std::string(twice).size());
      }
    }
    return test::complaint([&] { parse(replaced); }).find(key) != std::string::npos;
  };
  CHECK(refused("batch", "0"));
  CHECK(refused("slices", "-1"));
  CHECK(refused("passes", "-1"));
  CHECK(refused("steps", "-1"));
  CHECK(refused("learning_rate", "0"));
  CHECK(refused("min_lr_ratio", "1.5"));
  CHECK(refused("warmup_steps", "-1"));
  CHECK(refused("warmup_steps", "1.5"));
  CHECK(refused("warmup_steps", "1e300"));
  CHECK(refused("schedule", "\"cubic\""));
  CHECK(refused("decay_fraction", "1.1"));
  CHECK(refused("weight_decay", "-0.1"));
  CHECK(refused("weight_decay_on", "\"none\""));
  CHECK(refused("adam_epsilon", "1e-46"));  // 0 in float32
  CHECK(refused("clip", "-0.1"));
  CHECK(refused("adam_beta1", "1"));
  CHECK(refused("adam_beta2", "-0.5"));
  CHECK(refused("adam_epsilon", "0"));
  CHECK(refused("eval_interval", "0"));
  CHECK(refused("checkpoint_interval", "0"));
  CHECK(refused("checkpoint_minutes", "-1"));
  CHECK(refused("keep_last", "0"));
  CHECK(refused("keep_every", "-1"));
  CHECK(refused("divergence", "\"ignore\""));
  CHECK(refused("loss_jump", "-1"));
  CHECK(refused("log_interval", "0"));
  CHECK(refused("seed", "-1"));
  CHECK(refused("minutes", "-1"));
  CHECK(refused("eval_segment", "0"));
  CHECK(refused("eval_memory", "-1"));
  CHECK(refused("half_loss", "1"));
  CHECK(refused("precision", "\"half\""));
  CHECK(refused("learning_rat", "1"));
}

TEST_CASE("qltrain(1): lists every key that may change on a resume") {
  const std::string page = read_file(QL_TEST_DATA "/../man/qltrain.1");
  const std::size_t begin = page.find(".Ss What may change"), end = page.find(".Ss Divergence");
  REQUIRE(begin < end);
  std::istringstream lines(page.substr(begin, end - begin));
  std::set<std::string> listed;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.rfind(".It Cm ", 0) == 0 ? line.substr(7) : "");
    for (std::string word; words >> word;) listed.insert(word);
  }
  listed.erase(",");
  std::set<std::string> keys;
  for (const auto& names :
       {key_names<net::Network>(kMayChange), key_names<TrainingConfig>(kMayChange),
        key_names<TrainingConfig>(kMayChangeByName)}) {
    keys.insert(names.begin(), names.end());
  }
  CHECK(listed == keys);
}

TEST_CASE("TrainingConfig: validation lengths are those of training unless given") {
  TrainingConfig config = test::tiny_config();
  const net::Lengths training{8, 16, 4};
  CHECK(config.evaluation_lengths(training) == training);
  config.eval_memory = 0;
  config.eval_segment = 2;
  CHECK(config.evaluation_lengths(training) == net::Lengths{2, 0, 4});
}

}  // namespace ql::train
