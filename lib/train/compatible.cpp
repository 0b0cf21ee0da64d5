// Checks that task, vocabularies, settings and data fit together, and chooses the cutoffs of the
// adaptive softmax.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/provenance.h"
#include "base/strings.h"
#include "eval/data_set.h"
#include "eval/evaluate.h"
#include "eval/unigram.h"
#include "machine/device.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "shard/same_vocabulary.h"
#include "train/checkpoint.h"
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

DataIdentity identity_of(const shard::MultiReader& data) {
  std::vector<std::string> names;
  for (const shard::TokenReader& folder : data.folders()) {
    names.push_back(folder.name());
    if (find_invalid_utf8(names.back()) < names.back().size()) {
      throw Error(escaped(names.back()),
                  "the folder's name is not UTF-8, so a checkpoint cannot record it",
                  "rename the folder");
    }
  }
  DataIdentity identity{names.front(), {}, data.hash(), data.tokens()};
  if (names.size() > 1) identity.more.emplace(names.begin() + 1, names.end());
  return identity;
}

static void warn_of_unknown_tokens(const shard::MultiReader& data,
                                   const shard::MultiReader& validation) {
  if (!data.counts() || !validation.counts()) return;
  const std::int64_t unknown = data.counts()->unknown;
  const std::int64_t in_validation = validation.counts()->unknown;
  if (in_validation == 0) return;
  if (unknown > 0) {
    const double usual = static_cast<double>(unknown) / static_cast<double>(data.tokens());
    if (!eval::has_many_unknown(in_validation, validation.tokens(), usual)) return;
    log_warning(
        "<unk> is {} of the {} tokens of {}, several times its share in {}; prepare both texts in "
        "the same way",
        with_thousands(in_validation), with_thousands(validation.tokens()), validation.name(),
        data.name());
    return;
  }
  log_warning(
      "<unk> is {} of the {} tokens of {}, but does not occur in {}, so the network never learns "
      "<unk>; make a vocabulary of words or characters with qltok vocab --min-count 2 or more",
      with_thousands(in_validation), with_thousands(validation.tokens()), validation.name(),
      data.name());
}

static std::string describe(const DataIdentity& data, const shard::MultiReader& reader) {
  return fmt::format("{} tokens with hash {} (vocabulary: {})", with_thousands(data.tokens),
                     data.hash, shard::describe(reader.vocabulary()));
}

// Throws Error if the processes of the group differ in anything that the training run depends on.
static void require_same_job(const TrainingTask& task, const shard::MultiReader& data,
                             const shard::MultiReader& validation) {
  std::vector<machine::Fact> facts = {{"the version", version()},
                                      {"--data", describe(identity_of(data), data)},
                                      {"--valid", describe(identity_of(validation), validation)}};
  // The processes compare their facts by position, so keys without a value are facts, too.
  const auto add = [&facts](const std::vector<std::string>& keys, const Json& settings) {
    for (const std::string& key : keys) {
      facts.push_back({key, settings.contains(key) ? settings[key].dump() : "no value"});
    }
  };
  add(key_names<net::Network>(), net::network_to_json(task.network));
  add(training_keys(), training_to_json(task.config));
  static const std::array<const char*, 3> kStarts{"a new training", "--resume", "--force"};
  facts.push_back({"the start", kStarts.at(static_cast<std::size_t>(task.start))});
  facts.push_back({"--init", task.init.empty() ? "none" : "a checkpoint"});
  facts.push_back({"--stop-at", std::to_string(task.stop_at)});
  facts.push_back({"--device", task.compute.device.is_cpu() ? "cpu" : "cuda"});
  if (task.compute.device.is_cpu()) {
    facts.push_back({machine::kVectorVersionVariable, to_text(machine::vector_version())});
  }
  task.group->require_same(facts);
}

// Throws UsageError if --force would remove the checkpoint of --init, before there is a new one.
static void require_init_stays(const TrainingTask& task) {
  if (task.start != Start::kForce || task.init.empty()) return;
  const std::filesystem::path init = net::checkpoint_folder(task.init);
  for (const std::filesystem::path& checkpoint : newest_checkpoints(task.run)) {
    std::error_code ignored;
    // --force removes only the link itself, not the folder to which it leads.
    if (fs::is_symlink(fs::symlink_status(checkpoint, ignored))) continue;
    if (!fs::equivalent(checkpoint, init, ignored)) continue;
    throw UsageError(
        "--init",
        fmt::format("{} would be removed by --force before a new checkpoint is written",
                    task.init.string()),
        "choose another -o, or copy the checkpoint to another folder and give that");
  }
}

shard::MultiReader& check_task(const TrainingTask& task, shard::MultiReader& data,
                               shard::MultiReader& validation) {
  if (!task.group->is_single()) require_same_job(task, data, validation);
  require_init_stays(task);
  net::make_geometry(task.network, task.network.lengths);
  shard::require_same_vocabulary({validation.name(), validation.vocabulary()},
                                 {data.name(), data.vocabulary()},
                                 "encode all texts with the vocabulary of the training text");
  eval::check_length(eval::source_of(validation));
  warn_of_unknown_tokens(data, validation);
  if (task.network.reset_memory_at_documents) {
    // The readers keep the document starts from now on, so reading the starts cannot fail or be
    // interrupted in the middle of a step or a validation.
    data.document_starts();
    validation.document_starts();
  }
  if (!task.compute.device.is_cpu() && task.config.divergence != OnDivergence::kStop) {
    throw ConfigError("training: divergence",
                      fmt::format("{} needs a step's loss before the next step begins, but steps "
                                  "on {} do not wait for the loss",
                                  to_text(task.config.divergence), task.compute.device.str()),
                      "set divergence to stop, or train on the CPU");
  }
  Conflicts conflicts;
  find_conflicts(task.config, task.network, conflicts);
  conflicts.raise();
  return validation;
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
