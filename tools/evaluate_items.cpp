// Scores the items of qleval --items: reads their records from standard input, and prints a row for
// each choice, or a table.
#include <filesystem>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/tool.h"
#include "eval/items.h"
#include "eval/report.h"
#include "eval/sweep.h"
#include "eval/units.h"
#include "item_records.h"
#include "machine/device.h"
#include "machine/process_group.h"
#include "machine/threads.h"
#include "result_rows.h"
#include "tables.h"
#include "weights/weights.h"

namespace {

using namespace ql;

// Holds the figures of one checkpoint: of all items, and by the value of the key of --group.
struct Sums {
  struct GroupSums {
    Json value;
    eval::ItemSums sums;
  };
  void add(const eval::Item& item, const std::optional<std::string>& group) {
    all.add(item);
    if (!group) return;
    // In JSON null is the row of all items.
    const Json value = item.keys.value(*group, Json());
    if (value.is_null()) {
      throw FormatError(item.where,
                        fmt::format("the key '{}' of --group is {}", *group,
                                    item.keys.contains(*group) ? "null" : "missing"),
                        "give the item a value, or leave --group out");
    }
    const auto [found, is_new] = index.emplace(value, groups.size());
    if (is_new) groups.push_back({value, {}});
    groups[found->second].sums.add(item);
  }
  // Returns the names of the groups: texts as they are, unless that would give two rows one name.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    std::map<std::string, int> uses = {{kAll, 1}};
    for (const GroupSums& group : groups) {
      names.push_back(group.value.is_string() ? group.value.get<std::string>()
                                              : group.value.dump());
      ++uses[names.back()];
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const bool looks_quoted = !names[i].empty() && names[i].front() == '"';
      if (uses[names[i]] > 1 || looks_quoted) names[i] = groups[i].value.dump();
    }
    return names;
  }
  static constexpr const char* kAll = "-";  // the name of the row of all items
  eval::ItemSums all;
  std::vector<GroupSums> groups;      // in the order of the file
  std::map<Json, std::size_t> index;  // of each value in `groups`
};

// Warns of items whose figures mean less than they seem to.
class Doubts {
 public:
  Doubts(const eval::Checkpoint& checkpoint, std::optional<shard::TokenId> unknown)
      : checkpoint_(checkpoint), unknown_(unknown) {}
  void add(const eval::Item& item) {
    const auto length = static_cast<std::int64_t>(item.context.size());
    tokens_ += length;
    for (const std::int64_t id : item.context) {
      unknown_tokens_ += unknown_ && id == static_cast<std::int64_t>(*unknown_) ? 1 : 0;
    }
    bool has_unknown = false;
    for (const eval::Choice& choice : item.choices) {
      has_unknown = has_unknown || choice.unknown.value_or(0) > 0;
      longest_ = std::max(longest_, length + static_cast<std::int64_t>(choice.ids.size()));
    }
    items_ += has_unknown ? 1 : 0;
  }
  void warn() const {
    const std::string& name = checkpoint_.name;
    const std::int64_t segment = checkpoint_.lengths.front().segment;
    if (items_ > 0) {
      log_warning("{}: {} with <unk> in a choice: to predict <unk> counts as to know the word",
                  name, counted(items_, "item"));
    }
    if (eval::has_many_unknown(unknown_tokens_, tokens_, 0)) {
      log_warning(
          "{}: {:.1f} % of the context's tokens are <unk>; prepare contexts and choices as the "
          "training text was prepared",
          name, 100.0 * static_cast<double>(unknown_tokens_) / static_cast<double>(tokens_));
    }
    const net::Geometry geometry =
        net::make_geometry(checkpoint_.model.network, checkpoint_.lengths.front());
    if (!eval::has_memory(geometry) && longest_ > segment) {
      log_warning(
          "{}: items have up to {} tokens, but a network without memory sees nothing before its "
          "segment of {}; give --segment {} or more",
          name, with_thousands(longest_), with_thousands(segment), longest_);
    }
  }

 private:
  const eval::Checkpoint& checkpoint_;
  std::optional<shard::TokenId> unknown_;
  std::int64_t tokens_ = 0, unknown_tokens_ = 0;  // of all contexts
  std::int64_t items_ = 0;                        // with <unk> in a choice
  std::int64_t longest_ = 0;                      // tokens of a context and one of its choices
};

// A checkpoint without the file of its vocabulary may still record the <eos>, but not a line feed.
std::optional<shard::TokenId> begin_token(const Options& options, const shard::StreamHeader& header,
                                          const eval::Checkpoint& checkpoint) {
  if (!options.has("begin")) {
    const auto& recorded = checkpoint.model.vocabulary;
    if (!header.vocabulary_text.empty() || !recorded) {
      return eval::line_end_of(header.vocabulary, [&] { return header.vocabulary_text; });
    }
    if (!recorded->eos && !recorded->type.empty() && recorded->type != "word") {
      throw Error((checkpoint.folder / shard::kVocabularyFile).string(),
                  "is missing, so the token before every item is not known",
                  "copy it from another checkpoint of the training, or give --begin");
    }
    return recorded->eos;
  }
  const auto id = parse_integer(options.text("begin"));
  return id ? std::optional(static_cast<shard::TokenId>(*id)) : std::nullopt;
}

Json table_row(const eval::Checkpoint& checkpoint, const Options& options, const Json& group,
               const eval::ItemSums& sums) {
  const net::Lengths& lengths = checkpoint.lengths.front();
  Json row = {{"checkpoint", checkpoint.name},
              {"data", options.text("items")},
              {"segment", lengths.segment},
              {"memory", lengths.memory},
              {"compressed_memory", lengths.compressed_memory},
              {"group", group}};
  row.update(sums.row());
  eval::add_attention_keys(row, checkpoint.model.network);
  return row;
}

// Returns the row of a choice. JSON gets the item's other keys, too.
Json choice_row(const eval::Item& item, std::size_t choice, bool json) {
  Json row = eval::choice_row(item, choice);
  if (!json) {
    // An id is a name, so it is written as JSON and not rounded like a figure.
    Json& id = row["id"];
    if (id.is_number_float() || id.is_array()) id = id.dump();
    return row;
  }
  Json keys = item.keys;
  keys.erase("id");
  if (!keys.empty()) row["keys"] = std::move(keys);
  return row;
}

// Checks what can be checked before the first items are scored.
std::vector<eval::Checkpoint> read_checkpoints(const Options& options,
                                               machine::ProcessGroup& group) {
  for (const char* name : {"segment", "memory", "compressed-memory"}) {
    if (options.integers(name).size() > 1) {
      throw UsageError(fmt::format("--{}", name), "has several values, but --items takes one",
                       "call qleval once for each value");
    }
  }
  const net::LengthLists lists{options.integers("segment"), options.integers("memory"),
                               options.integers("compressed-memory")};
  std::vector<eval::Checkpoint> checkpoints;
  for (const std::string& name : qleval_inputs(options).checkpoints) {
    checkpoints.push_back(eval::read_checkpoint(name, lists, attention_change(options)));
    const std::int64_t entries = checkpoints.back().model.network.vocab_size;
    const auto begin = parse_integer(options.has("begin") ? options.text("begin") : "");
    if (begin) eval::check_begin(*begin, entries);
  }
  if (group.is_single()) return checkpoints;
  const std::string items = options.text("items");
  if (items == "-" || std::filesystem::is_fifo(items)) {
    throw UsageError("--items", "several processes cannot share a pipe",
                     "write the items to a file first");
  }
  std::vector<machine::Fact> facts = eval::facts_of(checkpoints);
  for (const eval::Checkpoint& checkpoint : checkpoints) {
    const RandomAccessFile weights(checkpoint.folder / "model.safetensors");
    facts.emplace_back("-m", "weights with hash " + weights.hash());
  }
  facts.emplace_back("--items", "a file with hash " + RandomAccessFile(items).hash());
  facts.emplace_back("--begin", options.has("begin") ? options.text("begin") : "not given");
  facts.emplace_back("--chunk", fmt::format("{}", options.integer("chunk")));
  group.require_same(facts);
  return checkpoints;
}

void score_checkpoint(const eval::Checkpoint& checkpoint, const Options& options,
                      ItemRecords& records, machine::ProcessGroup& group, ResultRows& rows) {
  const bool per_choice = options.has("per"), json = options.text("format") == "json";
  const auto group_key = options.has("group") ? std::optional(options.text("group")) : std::nullopt;
  const std::optional<shard::TokenId> begin =
      begin_token(options, records.vocabulary(), checkpoint);
  const shard::VocabularyInfo recorded =
      checkpoint.model.vocabulary.value_or(shard::VocabularyInfo());
  Doubts doubts(checkpoint, recorded.unk);
  const c10::Device device = machine::find_device(options.text("device"), group);
  const machine::Precision precision =
      machine::set_up_precision(device, options.choice<machine::Precision>("precision"), group);
  const nn::Model model = weights::load_model(checkpoint.folder, checkpoint.model.network,
                                              at::TensorOptions(at::kFloat).device(device));
  const nn::ModelPrecision in_precision(model, precision);
  const nn::ModelAtLengths at_lengths(model, checkpoint.lengths.front());
  eval::EvaluationOptions rules;
  rules.chunk = options.integer("chunk");
  rules.model = checkpoint.name;
  rules.group = &group;
  Sums sums;
  Progress progress(fmt::format("{}, {}", checkpoint.name, options.text("items")), "items");
  std::int64_t done = 0;
  eval::ItemScorer scorer(at_lengths, begin, rules, [&](const eval::Item& item) {
    sums.add(item, group_key);
    doubts.add(item);
    for (std::size_t i = 0; per_choice && i < item.choices.size(); ++i) {
      rows.put(choice_row(item, i, json));
    }
    progress.update(++done);
  });
  const auto pause = [&] {
    scorer.put_waiting();
    if (per_choice) rows.flush();
  };
  for (Json record = records.next(pause); !record.empty(); record = records.next(pause)) {
    eval::Item item = eval::item_from_json(record);
    try {
      scorer.put(std::move(item));
    } catch (const Error&) {
      pause();  // the rows of the items before this one come first
      throw;
    }
  }
  pause();
  progress.finish();
  if (done == 0) {
    throw Error(options.text("items") == "-" ? "standard input" : options.text("items"),
                "has no items");
  }
  if (group.is_first()) doubts.warn();
  if (per_choice) return;
  const std::vector<std::string> names = sums.names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Sums::GroupSums& one = sums.groups[i];
    rows.put(table_row(checkpoint, options, json ? one.value : Json(names[i]), one.sums));
  }
  rows.put(table_row(checkpoint, options, Json(), sums.all));
  rows.flush();  // the next checkpoint may take hours
}

}  // namespace

void evaluate_items(const Options& options, machine::ProcessGroup& group) {
  const std::vector<eval::Checkpoint> checkpoints = read_checkpoints(options, group);
  machine::set_up_threads(static_cast<int>(options.integer("threads")), group);
  ResultRows rows(options,
                  {"checkpoint", "group", "items", "accuracy", "accuracy_error",
                   "accuracy_per_byte", "accuracy_per_token", "perplexity"},
                  group.is_first());
  eval::Item example;
  example.choices.resize(1);
  rows.check(options.has("per") ? eval::choice_row(example, 0)
                                : table_row({"", {}, {}, {{}}}, options, {}, eval::ItemSums()));
  ItemRecords records;
  for (const eval::Checkpoint& checkpoint : checkpoints) {
    score_checkpoint(checkpoint, options, records, group, rows);
  }
  rows.close();
}
