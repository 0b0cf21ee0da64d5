// Checks that vocabularies, settings and data fit together, and chooses the cutoffs of the adaptive
// softmax.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "eval/data_set.h"
#include "eval/unigram.h"
#include "net/cost.h"
#include "train/trainer.h"

namespace ql::train {

static void compare_objects(const Json& saved, const Json& now,
                            const std::set<std::string>& may_change,
                            std::vector<std::string>& differences) {
  std::set<std::string> keys;
  for (const Json* json : {&saved, &now}) {
    for (const auto& item : json->items()) keys.insert(item.key());
  }
  for (const std::string& key : may_change) keys.erase(key);
  const auto text = [](const Json& json, const std::string& key) {
    return json.contains(key) ? json[key].dump() : std::string("absent");
  };
  for (const std::string& key : keys) {
    if (text(saved, key) != text(now, key)) {
      differences.push_back(
          fmt::format("{} was {} and is now {}", key, text(saved, key), text(now, key)));
    }
  }
}

static void compare_data(const char* option, const DataIdentity& saved, const DataIdentity& now,
                         std::vector<std::string>& differences) {
  if (saved.hash != now.hash) {
    differences.push_back(
        fmt::format("{} was {} ({} tokens, hash {}) and is now {} ({} tokens, hash {})", option,
                    saved.words(), saved.tokens, saved.hash, now.words(), now.tokens, now.hash));
  }
}

// With div_val above 1 the choice depends on the size of the vocabulary alone.
static void choose_cutoffs(net::Network& network, shard::MultiReader& data) {
  if (!net::shares_embedding(network)) {
    network.cutoffs = net::propose_cutoffs(network, {});
    log_info(
        "cutoffs [{}]: div_val is {}, so the vocabulary is divided in the proportions of 20,000, "
        "40,000 and 200,000 to 267,735, as for WikiText-103",
        fmt::join(network.cutoffs, ", "), network.div_val);
    return;
  }
  Progress progress(fmt::format("counting {}", data.name()), "tokens", data.tokens());
  const std::vector<std::int64_t> counts = eval::count_tokens(
      eval::source_of(data), network.vocab_size, [&](std::int64_t done) { progress.update(done); });
  progress.finish();
  network.cutoffs = net::propose_cutoffs(network, counts);
  log_info("cutoffs [{}]: {}", fmt::join(network.cutoffs, ", "),
           network.cutoffs.empty()
               ? "with this data, cutoffs would make the softmax hardly faster"
               : "with this data, they make the softmax of a training on the CPU fastest");
}

net::Network with_vocabulary(const net::Network& network, const std::string& where,
                             shard::MultiReader& data) {
  const std::int64_t size = data.vocabulary().size;
  if (network.vocab_size != 0 && network.vocab_size != size) {
    throw Error(where,
                fmt::format("vocab_size is {}, but {} was made with a vocabulary of {} entries",
                            network.vocab_size, data.name(), size),
                "give --set vocab_size=0, which takes the size from the data");
  }
  net::Network complete = network;
  complete.vocab_size = size;
  if (complete.cutoffs_from_data) {
    complete.cutoffs_from_data = false;
    choose_cutoffs(complete, data);
    // Equal values are meant for whatever clusters there are.
    std::vector<bool>& ties = complete.tie_projs;
    if (!ties.empty() && std::count(ties.begin(), ties.end(), ties.front()) ==
                             static_cast<std::ptrdiff_t>(ties.size())) {
      ties.assign(complete.cutoffs.size() + 1, ties.front());
    }
  }
  complete.check(where);
  return complete;
}

void require_same_training(const std::string& where, const net::ModelFile& saved,
                           const TrainingState& saved_state, const net::ModelFile& now,
                           const DataIdentity& data, const DataIdentity& validation,
                           const std::vector<std::string>& named) {
  std::set<std::string> may_change;
  for (const auto& keys :
       {key_names<net::Network>(kMayChange), key_names<TrainingConfig>(kMayChange)}) {
    may_change.insert(keys.begin(), keys.end());
  }
  const JsonObject before(saved.training, where + ": training");
  std::vector<std::string> to_name;  // advice on keys that differ, but that --set may change
  for (const std::string& key : key_names<TrainingConfig>(kMayChangeByName)) {
    const std::string was = before.text(key);
    const auto& is = now.training.at(key).get_ref<const std::string&>();
    if (std::find(named.begin(), named.end(), key) != named.end()) {
      may_change.insert(key);
    } else if (was != is) {
      to_name.push_back(fmt::format(
          "add --set {0}={1} to continue as before, or --set {0}={2} to change it", key, was, is));
    }
  }
  std::vector<std::string> differences;
  compare_objects(net::network_to_json(saved.network), net::network_to_json(now.network),
                  may_change, differences);
  compare_objects(saved.training, now.training, may_change, differences);
  compare_data("--data", saved_state.data, data, differences);
  compare_data("--valid", saved_state.validation, validation, differences);
  if (!differences.empty()) {
    throw Error(where, fmt::format("cannot resume: {}", fmt::join(differences, ", ")),
                differences.size() == to_name.size()
                    ? fmt::format("{}", fmt::join(to_name, "; "))
                    : "use the same preset, options and data, or start a new training with another "
                      "-o, from this checkpoint's weights (--init) if shapes and vocabulary fit");
  }
}

Settings settings_of(const net::ModelFile& file) {
  Settings settings;
  for (const Json& part : {net::network_to_json(file.network), file.training}) {
    for (const auto& [key, value] : part.items()) settings.emplace(key, value);
  }
  return settings;
}

Json changed_settings(const Settings& saved, const Settings& now) {
  Json changes = Json::object();
  for (const auto& [key, before] : saved) {
    const auto after = now.find(key);
    if (after != now.end() && after->second != before) {
      changes[key] = {{"before", before}, {"after", after->second}};
    }
  }
  return changes;
}

}  // namespace ql::train
