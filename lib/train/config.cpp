#include "train/config.h"

#include <set>

#include "base/error.h"

namespace ql::train {
namespace {

// One place that knows every key: `visit(key, member)` for each of them, in the order of the file.
template <typename Config, typename Visitor>
void for_each_key(Config& config, Visitor&& visit) {
  visit("batch", config.batch);
  visit("steps", config.steps);
  visit("minutes", config.minutes);
  visit("learning_rate", config.learning_rate);
  visit("min_lr_ratio", config.min_lr_ratio);
  visit("warmup_steps", config.warmup_steps);
  visit("clip", config.clip);
  visit("adam_beta1", config.adam_beta1);
  visit("adam_beta2", config.adam_beta2);
  visit("adam_epsilon", config.adam_epsilon);
  visit("eval_interval", config.eval_interval);
  visit("checkpoint_interval", config.checkpoint_interval);
  visit("checkpoint_minutes", config.checkpoint_minutes);
  visit("keep_last", config.keep_last);
  visit("keep_every", config.keep_every);
  visit("log_interval", config.log_interval);
  visit("seed", config.seed);
  visit("precision", config.precision);
  visit("divergence", config.divergence);
  visit("loss_jump", config.loss_jump);
  visit("recons_loss_weight", config.recons_loss_weight);
  visit("half_loss", config.half_loss);
  visit("slices", config.slices);
  visit("passes", config.passes);
  visit("eval_segment", config.eval_segment);
  visit("eval_memory", config.eval_memory);
  visit("eval_compressed_memory", config.eval_compressed_memory);
}

struct Reader {
  const JsonObject& json;
  void operator()(const std::string& key, std::int64_t& value) const {
    if (json.has(key)) {
      value = json.integer(key);
    }
  }
  void operator()(const std::string& key, double& value) const {
    if (json.has(key)) {
      value = json.real(key);
    }
  }
  void operator()(const std::string& key, bool& value) const {
    if (json.has(key)) {
      value = json.boolean(key);
    }
  }
  void operator()(const std::string& key, nn::Precision& value) const {
    if (json.has(key)) {
      value = nn::precision_from_text(json.text(key), json.where() + ": " + key);
    }
  }
  void operator()(const std::string& key, OnDivergence& value) const {
    if (json.has(key)) {
      value = on_divergence_from_text(json.text(key), json.where() + ": " + key);
    }
  }
  void operator()(const std::string& key, std::optional<std::int64_t>& value) const {
    if (json.has(key)) {
      value = json.integer(key);
    }
  }
  void operator()(const std::string& key, std::optional<double>& value) const {
    if (json.has(key)) {
      value = json.real(key);
    }
  }
};

struct Writer {
  Json& json;
  template <typename Value>
  void operator()(const std::string& key, const Value& value) const {
    json[key] = value;
  }
  void operator()(const std::string& key, nn::Precision value) const {
    json[key] = nn::to_text(value);
  }
  void operator()(const std::string& key, OnDivergence value) const { json[key] = to_text(value); }
  template <typename Value>
  void operator()(const std::string& key, const std::optional<Value>& value) const {
    if (value) {
      json[key] = *value;
    }
  }
};

struct Check {
  const std::string& where;
  template <typename Number>
  void operator()(bool holds, const char* key, Number value, const char* allowed) const {
    if (!holds) {
      throw ConfigError(where + ": " + key, fmt::format("{} is not possible", value),
                        fmt::format("it has to be {}", allowed));
    }
  }
};

}  // namespace

void TrainingConfig::check(const std::string& where) const {
  const Check require{where};
  require(batch >= 1, "batch", batch, "at least 1");
  require(steps >= 1, "steps", steps, "at least 1");
  require(minutes >= 0, "minutes", minutes, "0 (no budget) or more");
  require(learning_rate > 0, "learning_rate", learning_rate, "above 0");
  require(min_lr_ratio >= 0 && min_lr_ratio <= 1, "min_lr_ratio", min_lr_ratio, "from 0 to 1");
  require(warmup_steps >= 0, "warmup_steps", warmup_steps, "0 or more");
  require(clip >= 0, "clip", clip, "0 (no clipping) or more");
  require(adam_beta1 >= 0 && adam_beta1 < 1, "adam_beta1", adam_beta1, "from 0 to below 1");
  require(adam_beta2 >= 0 && adam_beta2 < 1, "adam_beta2", adam_beta2, "from 0 to below 1");
  require(adam_epsilon > 0, "adam_epsilon", adam_epsilon, "above 0");
  require(eval_interval >= 1, "eval_interval", eval_interval, "at least 1");
  require(checkpoint_interval >= 1, "checkpoint_interval", checkpoint_interval, "at least 1");
  require(checkpoint_minutes >= 0, "checkpoint_minutes", checkpoint_minutes,
          "0 (by steps alone) or more");
  require(keep_last >= 1, "keep_last", keep_last, "at least 1");
  require(keep_every >= 0, "keep_every", keep_every, "0 (none) or more");
  require(loss_jump >= 0, "loss_jump", loss_jump, "0 (however large) or more");
  require(log_interval >= 1, "log_interval", log_interval, "at least 1");
  require(seed >= 0, "seed", seed, "0 or more");
  require(slices >= 0, "slices", slices, "0 (as the machine has threads) or more");
  require(passes >= 0, "passes", passes, "0 (as the memory allows) or more");
  require(!recons_loss_weight || *recons_loss_weight >= 0, "recons_loss_weight",
          recons_loss_weight.value_or(0), "0 or more");
  require(!eval_segment || *eval_segment >= 1, "eval_segment", eval_segment.value_or(1),
          "at least 1");
  require(!eval_memory || *eval_memory >= 0, "eval_memory", eval_memory.value_or(0), "0 or more");
  require(!eval_compressed_memory || *eval_compressed_memory >= 0, "eval_compressed_memory",
          eval_compressed_memory.value_or(0), "0 or more");
}

net::Lengths TrainingConfig::evaluation_lengths(const net::Lengths& training) const {
  net::Lengths lengths = training;
  lengths.segment = eval_segment.value_or(training.segment);
  lengths.memory = eval_memory.value_or(training.memory);
  lengths.compressed_memory = eval_compressed_memory.value_or(training.compressed_memory);
  return lengths;
}

std::vector<std::string> training_keys() {
  std::vector<std::string> keys;
  TrainingConfig config;
  for_each_key(config, [&](const char* key, auto&) { keys.emplace_back(key); });
  return keys;
}

TrainingConfig training_from_json(const JsonObject& json) {
  const auto keys = training_keys();
  json.refuse_unknown({keys.begin(), keys.end()});
  for (const char* key : {"batch", "steps", "learning_rate"}) {
    json.at(key);  // no sensible default: says that it is missing
  }
  TrainingConfig config;
  for_each_key(config, Reader{json});
  config.check(json.where());
  return config;
}

Json training_to_json(const TrainingConfig& config) {
  Json json = Json::object();
  for_each_key(config, Writer{json});
  return json;
}

bool may_change_on_resume(const std::string& training_key) {
  static const std::set<std::string> kKeys{
      "batch",        "steps",      "minutes",       "learning_rate",       "min_lr_ratio",
      "warmup_steps", "clip",       "eval_interval", "checkpoint_interval", "checkpoint_minutes",
      "keep_last",    "keep_every", "log_interval",  "divergence",          "loss_jump",
      "slices",       "passes"};
  return kKeys.count(training_key) > 0;
}

}  // namespace ql::train
