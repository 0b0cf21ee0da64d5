// Makes the rows of results, column by column.

#include "eval/report.h"

#include <cmath>

namespace ql::eval {

// Returns null for a NaN, which stands for a figure that is not known. A perplexity can be
// infinite, because e to the power of a finite loss may exceed every double; JSON then has null,
// too.
static Json if_known(double value) { return std::isnan(value) ? Json(nullptr) : Json(value); }

// Returns true if the losses cover the counted text. The first token of a stream, and of each unit
// that is read without a begin token, has no loss. One missing token is negligible; one missing
// token per unit is not.
static bool covers_text(const DataSet& data, const Evaluation& result) {
  if (result.targets == 0) return false;
  return result.reset_at.empty() || data.source.tokens - result.targets <= 1;
}

// Returns the nll per unit (word, byte, target, ...). If the number of units is 0 or not known,
// returns NaN, which if_known() turns into null.
static double per_unit(double nll, std::int64_t units) {
  return units > 0 ? nll / static_cast<double>(units) : std::nan("");
}

// Returns the range of context lengths at the scored positions: the newest `stride` positions of a
// window, or without a stride all positions of a segment.
static net::ContextLength scored_context(const EvaluatedModel& model, std::int64_t stride) {
  std::vector<std::int64_t> lengths =
      net::exact_lengths(net::make_geometry(*model.network, model.lengths));
  if (stride > 0) lengths.erase(lengths.begin(), lengths.end() - stride);
  return net::range_of(lengths);
}

void add_attention_keys(Json& row, const std::optional<net::Network>& network) {
  row["clamp_len"] = network && network->clamp_len >= 0 ? Json(network->clamp_len) : Json();
  row["same_length"] = network ? Json(network->same_length) : Json();
}

static void add_evaluated_model(Json& row, const EvaluatedModel& model, const Evaluation& result) {
  const auto of_network = [&](std::int64_t value) { return model.network ? Json(value) : Json(); };
  const auto if_any = [](std::int64_t tokens) { return tokens > 0 ? Json(tokens) : Json(); };
  row["arch"] = model.network ? net::to_short_text(model.network->architecture) : "unigram";
  row["parameters"] = model.parameters;
  row["segment"] = of_network(model.lengths.segment);
  row["memory"] = of_network(model.lengths.memory);
  row["compressed_memory"] = of_network(model.lengths.compressed_memory);
  row["stride"] = if_any(result.stride);
  row["reset"] = result.reset_at.empty() ? if_any(result.reset) : Json(result.reset_at);
  const bool estimated =
      model.network && result.stride == 0 && net::has_paper_context(*model.network);
  row["context"] =
      estimated ? Json(net::paper_context(*model.network, model.lengths).mean()) : Json();
  const auto exact = model.network ? scored_context(model, result.stride) : net::ContextLength();
  row["context_min"] = of_network(exact.minimum);
  row["context_max"] = of_network(exact.maximum);
}

// Adds the figures of the text. Those that are not counted are null.
static void add_text_figures(Json& row, const DataSet& data, double nll) {
  const double ln2 = std::log(2.0);
  const std::int64_t tokens = data.source.tokens;
  const auto if_counted = [&](const auto& value) { return data.counts ? Json(value) : Json(); };
  shard::TextCounts text = data.counts.value_or(shard::TextCounts());
  // Data that was cut out of other data has no counts, but each of its tokens may be one unit. An
  // <eos> is none where it begins a line.
  const bool are_units = !data.counts && !data.vocabulary.eos;
  if (are_units && data.vocabulary.type == "char") text.characters = tokens;
  if (are_units && data.vocabulary.type == "byte") text.bytes = tokens;
  row["words"] = if_counted(text.words);
  row["bytes"] = text.bytes > 0 ? Json(text.bytes) : if_counted(text.bytes);
  row["characters"] = text.characters > 0 ? Json(text.characters) : if_counted(text.characters);
  row["unknown"] = if_counted(text.unknown);
  row["unknown_rate"] = if_counted(static_cast<double>(text.unknown) / static_cast<double>(tokens));
  row["word_perplexity"] = if_known(std::exp(per_unit(nll, text.words)));
  row["byte_perplexity"] = if_known(std::exp(per_unit(nll, text.bytes)));
  row["bits_per_byte"] = if_known(per_unit(nll, text.bytes) / ln2);
  row["bits_per_character"] = if_known(per_unit(nll, text.characters) / ln2);
}

// Adds the figures for the targets that are not <unk>. Figures per word need a vocabulary of words,
// where each <unk> is one word. For known_bits_per_byte the nll is divided by the bytes of the
// complete text, because the bytes of unknown words were not counted separately.
static void add_known_figures(Json& row, const DataSet& data, const Evaluation& result) {
  const bool has_unknown = data.vocabulary.unk.has_value();
  const LossSums known = has_unknown ? result.known : LossSums();
  const std::int64_t unknown = result.targets - known.targets;
  shard::TextCounts text;
  if (has_unknown && data.counts && covers_text(data, result)) text = *data.counts;
  const std::int64_t words =
      data.vocabulary.type == "word" && text.words > 0 ? text.words - unknown : 0;
  row["unknown_targets"] = has_unknown ? Json(unknown) : Json();
  row["known_perplexity"] = if_known(known.perplexity());
  row["known_standard_error"] = if_known(known.standard_error());
  row["known_word_perplexity"] = if_known(std::exp(per_unit(known.nll, words)));
  row["known_bits_per_byte"] = if_known(per_unit(known.nll, text.bytes) / std::log(2.0));
}

Json report_row(const EvaluatedModel& model, const DataSet& data, const Evaluation& result) {
  Json row = Json::object();
  row["checkpoint"] = model.name;
  row["data"] = data.name;
  add_evaluated_model(row, model, result);
  row["tokens"] = data.source.tokens;
  row["targets"] = result.targets;
  row["nll"] = if_known(result.nll);
  row["perplexity"] = if_known(result.perplexity());
  row["standard_error"] = if_known(result.standard_error());
  add_text_figures(row, data, covers_text(data, result) ? result.nll : std::nan(""));
  add_known_figures(row, data, result);
  row["warm_up"] = result.warm_up;
  row["precision"] = model.precision ? Json(to_text(*model.precision)) : Json();
  row["tokens_per_second"] =
      result.seconds > 0
          ? if_known(std::round(static_cast<double>(result.targets) / result.seconds))
          : Json();
  add_attention_keys(row, model.network);
  return row;
}

Json attention_row(const nn::AttentionMap::Distance& distance) {
  return {{"layer", distance.stage->layer + 1},    {"scale", distance.stage->scale + 1},
          {"granularity", distance.stage->stride}, {"head", distance.head + 1},
          {"distance", distance.states},           {"tokens", distance.tokens},
          {"queries", distance.queries},           {"probability", distance.probability}};
}

Json token_row(const ScoredTargets& targets, std::int64_t i, const TokenTexts& texts) {
  const auto text_of = [&texts](std::int64_t id) {
    const auto place = static_cast<std::size_t>(id);
    return place < texts.size() ? Json(texts[place]) : Json();
  };
  Json row = Json::object();
  row["position"] = targets.position + i;
  row["id"] = targets.ids[i];
  row["token"] = text_of(targets.ids[i]);
  row["loss"] = if_known(targets.losses[i]);
  for (std::int64_t rank = 1; rank <= targets.top; ++rank) {
    const LikelyToken& likely = targets.likeliest[i * targets.top + rank - 1];
    row[fmt::format("id_{}", rank)] = likely.id;
    row[fmt::format("token_{}", rank)] = text_of(likely.id);
    row[fmt::format("log_probability_{}", rank)] = if_known(likely.log_probability);
  }
  return row;
}

Json unit_row(const UnitSum& sum) {
  Json row = Json::object();
  row["unit"] = sum.number;
  if (sum.text) row["word"] = *sum.text;
  row["targets"] = sum.targets;
  row["unknown_targets"] = sum.unknown_targets;
  row["nll"] = if_known(sum.nll);
  row["perplexity"] = if_known(std::exp(per_unit(sum.nll, sum.targets)));
  return row;
}

}  // namespace ql::eval
