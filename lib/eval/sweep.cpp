// Reads and checks the checkpoints and data sets of a qleval call, and evaluates their
// combinations.

#include "eval/sweep.h"

#include "base/log.h"
#include "base/provenance.h"
#include "base/rows.h"
#include "eval/losses.h"
#include "eval/report.h"
#include "eval/unigram.h"
#include "shard/same_vocabulary.h"
#include "weights/weights.h"

namespace ql::eval {
namespace {

std::vector<Checkpoint> read_checkpoints(const SweepOptions& options) {
  std::vector<Checkpoint> checkpoints;
  for (const std::string& name : options.checkpoints) {
    checkpoints.push_back(read_checkpoint(name, options.lists, options.change, options.stride));
  }
  return checkpoints;
}

std::size_t rows_of(const SweepOptions& options, const std::vector<Checkpoint>& checkpoints) {
  std::size_t models = options.unigram ? 1 : 0;
  for (const Checkpoint& checkpoint : checkpoints) models += checkpoint.lengths.size();
  return models * options.data.size();
}

// Returns the last word of a progress line.
std::string perplexity_text(const Evaluation& result) {
  return result.targets == 0 ? "no targets" : "perplexity " + human_perplexity(result.perplexity());
}

// Returns the result of run(options) for one row of the table. Shows progress, and writes the file
// of --per-token. run() itself adds the options that depend on the model.
template <typename Run>
Evaluation observe(const std::string& title, const DataSet& data, const SweepOptions& options,
                   const Run& run) {
  const std::int64_t targets = data.source.tokens - 1;
  EvaluationOptions of_row = options;
  of_row.unknown = data.vocabulary.unk;
  of_row.sink = nullptr;
  std::optional<LossFile> losses;
  if (options.loss_file) {
    losses.emplace(*options.loss_file, targets);
    of_row.sink = [&losses](const ScoredTargets& scored) {
      losses->put(scored.position, scored.losses, scored.count);
    };
  }
  Progress progress(title, "tokens", targets);
  of_row.progress = [&progress](std::int64_t done) { progress.update(done); };
  Evaluation result = run(of_row);
  if (losses) losses->commit();
  progress.finish(perplexity_text(result));
  return result;
}

// Returns run(map), which fills an empty attention map, and writes the map to the file of
// --attention. Without that option the map is null.
template <typename Run>
auto with_attention_map(const SweepOptions& options, const net::Network& network,
                        const net::Lengths& lengths, const Run& run) {
  if (!options.attention_file) return run(nullptr);
  AtomicFile file(*options.attention_file);
  nn::AttentionMap map(network, net::make_geometry(network, lengths));
  auto result = run(&map);
  TableText table("all", /*terminal=*/0);
  for (const nn::AttentionMap::Distance& distance : map.distances()) {
    file.write(table.lines(attention_row(distance)));
  }
  file.commit();
  return result;
}

Evaluation evaluate_network(const nn::Model& model, const std::string& name,
                            const net::Lengths& lengths, const DataSet& data,
                            const SweepOptions& options) {
  const std::string title =
      fmt::format("{}, {}, {}/{}", name, data.name, lengths.segment, lengths.memory);
  return with_attention_map(options, model.network(), lengths, [&](nn::AttentionMap* map) {
    return observe(title, data, options, [&](EvaluationOptions of_row) {
      of_row.lengths = lengths;
      of_row.attention_map = map;
      of_row.model = name;
      return evaluate(model, data.source, of_row);
    });
  });
}

// Calls row() for every model on every data set, with the result of evaluate(model, data). If there
// are several data sets, a row for the sum follows for each model, with the data name "(all)".
template <typename Evaluate>
void report_all(const std::vector<EvaluatedModel>& models, const std::vector<DataSet>& data,
                const std::function<void(const Json&)>& row, const Evaluate& evaluate) {
  DataSet all{"(all)", {}, shard::TextCounts(), {"(all)", 0, {}, {}}};
  std::vector<Evaluation> sums;
  for (const DataSet& set : data) {
    all.counts = all.counts && set.counts ? std::optional(*all.counts + *set.counts) : std::nullopt;
    all.source.tokens += set.source.tokens;
    for (std::size_t i = 0; i < models.size(); ++i) {
      const Evaluation result = evaluate(models[i], set);
      row(report_row(models[i], set, result));
      if (sums.size() == i) {
        sums.push_back(result);
      } else {
        sums[i].add(result);
      }
    }
  }
  if (data.size() < 2) return;
  all.vocabulary = data.front().vocabulary;
  // Where a data set has no vocabulary, nobody knows which of its targets are <unk>.
  for (const DataSet& set : data) {
    if (!set.vocabulary.unk) all.vocabulary.unk.reset();
  }
  for (std::size_t i = 0; i < models.size(); ++i) row(report_row(models[i], all, sums[i]));
}

void run_checkpoint(const Checkpoint& checkpoint, const std::vector<DataSet>& data,
                    const SweepOptions& options, const std::function<void(const Json&)>& row) {
  const nn::Model model = weights::load_model(checkpoint.folder, checkpoint.model.network,
                                              at::TensorOptions(at::kFloat).device(options.device));
  if (!options.group->is_single()) {
    options.group->require_same({{"-m", "weights with hash " + weights::hash_of(model)}});
  }
  const nn::ModelPrecision precision(model, options.precision);
  std::vector<EvaluatedModel> models;
  for (const net::Lengths& lengths : checkpoint.lengths) {
    models.push_back(
        {checkpoint.name, model.network(), lengths, model.parameter_count(), options.precision});
  }
  report_all(models, data, row, [&](const EvaluatedModel& evaluated, const DataSet& set) {
    return evaluate_network(model, evaluated.name, evaluated.lengths, set, options);
  });
}

void run_unigram(const DataSet& training, const std::vector<DataSet>& data,
                 const SweepOptions& options, const std::function<void(const Json&)>& row) {
  Progress progress(fmt::format("counting {}", training.name), "tokens", training.source.tokens);
  const Unigram unigram(training.source, training.vocabulary.size,
                        [&progress](std::int64_t done) { progress.update(done); });
  progress.finish();
  report_all({{*options.unigram, std::nullopt, {}, training.vocabulary.size}}, data, row,
             [&](const EvaluatedModel&, const DataSet& set) {
               return observe(fmt::format("unigram, {}", set.name), set, options,
                              [&](const EvaluationOptions& of_row) {
                                return unigram.evaluate(set.source, of_row);
                              });
             });
}

// Throws Error if the processes differ in the version, the networks, the lengths or the data.
void require_same_job(const SweepOptions& options, const std::vector<Checkpoint>& checkpoints,
                      const std::vector<DataSet>& data) {
  std::vector<machine::Fact> facts = facts_of(checkpoints);
  for (const DataSet& set : data) {
    facts.push_back({"--data", fmt::format("{} tokens with hash {} (vocabulary: {})",
                                           with_thousands(set.source.tokens), set.hash,
                                           describe(set.vocabulary))});
  }
  options.group->require_same(facts);
}

// Returns true if the data is to be read once and in order: for independent units, and for a token
// stream if one pass gives all results.
bool needs_one_pass(const SweepOptions& options, std::size_t rows) {
  return options.alone || (rows == 1 && options.checkpoints.size() == 1 &&
                           shard::names_stream(options.data.front()) && !options.loss_file);
}

Json run_one_pass(const SweepOptions& options, const std::vector<Checkpoint>& checkpoints,
                  Unit unit, const UnitSums::Sink& sink, const TokenSink& token_sink = {}) {
  const std::size_t rows = rows_of(options, checkpoints);
  if (rows != 1 || checkpoints.empty()) {
    throw UsageError(
        options.alone ? "--reset" : "--per",
        fmt::format("needs one combination of network, data and lengths, but this call has {}",
                    checkpoints.empty() ? "no network" : std::to_string(rows)),
        "give one checkpoint, one data set, and at most one value for each length");
  }
  const Checkpoint& checkpoint = checkpoints.front();
  if (const std::int64_t entries = checkpoint.model.network.vocab_size; options.top > entries) {
    throw UsageError("--top", fmt::format("expected 1 to {}, the size of the vocabulary, found {}",
                                          entries, options.top));
  }
  const nn::Model model = weights::load_model(checkpoint.folder, checkpoint.model.network,
                                              at::TensorOptions(at::kFloat).device(options.device));
  const nn::ModelPrecision precision(model, options.precision);
  Progress progress(fmt::format("{}, {}", checkpoint.name, options.data.front()), "tokens");
  UnitOptions unit_options{options, unit, token_sink};
  unit_options.lengths = checkpoint.lengths.front();
  unit_options.model = checkpoint.name;
  unit_options.progress = [&progress](std::int64_t done) { progress.update(done); };
  const UnitScores scores = with_attention_map(
      options, model.network(), unit_options.lengths, [&](nn::AttentionMap* map) {
        unit_options.attention_map = map;
        return score_units(model, checkpoint.name, checkpoint.model.vocabulary,
                           options.data.front(), unit_options, sink);
      });
  progress.finish(perplexity_text(scores.evaluation));
  return report_row({checkpoint.name, model.network(), unit_options.lengths,
                     model.parameter_count(), options.precision},
                    scores.data, scores.evaluation);
}

}  // namespace

Checkpoint read_checkpoint(const std::string& name, const net::LengthLists& lists,
                           const net::AttentionChange& change, std::int64_t stride) {
  Checkpoint checkpoint{name, net::checkpoint_folder(name), net::read_model_file(name), {}};
  try {
    checkpoint.model.network = net::with_change(std::move(checkpoint.model.network), change);
  } catch (const ConfigError& error) {
    throw ConfigError(name, error.what());
  }
  net::require_weights(checkpoint.folder, name);
  checkpoint.lengths = net::all_lengths(lists, checkpoint.model.network.lengths);
  // The lengths of the training may not fit the change.
  checkpoint.model.network.lengths = checkpoint.lengths.front();
  for (const net::Lengths& lengths : checkpoint.lengths) {
    try {
      check_stride(net::make_geometry(checkpoint.model.network, lengths), stride);
    } catch (const ConfigError& error) {
      throw ConfigError(name, error.what());
    }
  }
  return checkpoint;
}

std::vector<machine::Fact> facts_of(const std::vector<Checkpoint>& checkpoints) {
  std::vector<machine::Fact> facts = {{"the version", version()}};
  for (const Checkpoint& checkpoint : checkpoints) {
    const std::string network = net::network_to_json(checkpoint.model.network).dump();
    facts.push_back({"-m", "a network with hash " + content_hash(network)});
    for (const net::Lengths& lengths : checkpoint.lengths) {
      facts.push_back({"the lengths", fmt::format("{}, {}, {}", lengths.segment, lengths.memory,
                                                  lengths.compressed_memory)});
    }
  }
  return facts;
}

void run_sweep(const SweepOptions& options, const std::function<void(const Json& row)>& row) {
  const std::vector<Checkpoint> checkpoints = read_checkpoints(options);
  const std::size_t rows = rows_of(options, checkpoints);
  for (const auto& [file, option] : {std::pair(options.loss_file, "--per-token"),
                                     std::pair(options.attention_file, "--attention")}) {
    if (file && rows != 1) {
      throw UsageError(option,
                       fmt::format("needs a single row of results, but this call has {}", rows),
                       "give one model, one data set, and at most one value for each length");
    }
  }
  if (needs_one_pass(options, rows)) {
    row(run_one_pass(options, checkpoints, Unit::kWhole, [](const UnitSum&) {}));
    return;
  }
  std::vector<DataSet> data;
  for (const std::string& path : options.data) {
    data.push_back(open_data(path));
    check_length(data.back().source);
    for (const Checkpoint& checkpoint : checkpoints) {
      const net::ModelFile& model = checkpoint.model;
      check_vocabulary(checkpoint.name,
                       recorded_or_size(model.vocabulary, model.network.vocab_size), data.back());
    }
  }
  if (!options.group->is_single()) require_same_job(options, checkpoints, data);
  std::optional<DataSet> training;
  if (options.unigram) {
    training = open_data(*options.unigram);
    if (training->source.tokens == 0) {
      throw Error(training->name, "the training data of the unigram model has no tokens",
                  "give the data that the vocabulary was made from");
    }
    for (const DataSet& set : data) check_vocabulary(training->name, training->vocabulary, set);
  }
  for (const Checkpoint& checkpoint : checkpoints) run_checkpoint(checkpoint, data, options, row);
  if (training) run_unigram(*training, data, options, row);
}

Json run_unit_sweep(const SweepOptions& options, Unit unit, const UnitSums::Sink& sink,
                    const TokenSink& token_sink) {
  return run_one_pass(options, read_checkpoints(options), unit, sink, token_sink);
}

}  // namespace ql::eval
