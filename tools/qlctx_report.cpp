#include "qlctx_report.h"

#include <cmath>
#include <optional>

#include "base/common_options.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rows.h"
#include "qlctx_measure.h"

namespace ql::ctx {
namespace {

// A row as JSON, from which the TSV is printed too: the two cannot differ.
Json row_to_json(const Row& row) {
  const net::Network& network = row.network;
  const net::Lengths& lengths = row.geometry.lengths;
  const bool compresses =
      network.scales.size() > 1 || network.architecture == net::Architecture::kCompressive;
  Json json = Json::object();
  json["arch"] = net::to_short_text(network.architecture);
  json["segment"] = lengths.segment;
  json["memory"] = lengths.memory;
  json["window"] = lengths.segment + lengths.memory + lengths.compressed_memory;
  json["min"] = row.context.minimum;
  json["max"] = row.context.maximum;
  json["mean"] = row.context.mean();
  json["method"] = row.method;
  json["compressed_memory"] = lengths.compressed_memory;
  json["scales"] = network.scales;
  json["output_layers"] = network.output_layers;
  json["rate"] = compresses ? Json(network.rate) : Json();
  json["parameters"] = row.has_sizes ? Json(row.cost.parameters) : Json();
  json["flops_per_token"] =
      row.has_sizes ? Json(std::llround(row.cost.forward_flops_per_token)) : Json();
  json["memory_states"] = row.cost.memory_states;
  json.update(row.more);
  json["training_flops_per_token"] =
      row.has_sizes ? Json(std::llround(row.cost.training_flops_per_token)) : Json();
  return json;
}

// Describes a scale, or the output block behind the last one.
Json scale_to_json(const Row& row, std::size_t scale, std::int64_t layers) {
  const net::Stage& stage = row.geometry.last_input(scale);
  Json json = Json::object();
  json["layers"] = layers;
  json["segment"] = stage.segment;
  json["memory"] = stage.memory;
  json["granularity"] = stage.granularity;
  json["shift"] = stage.shift;
  return json;
}

Json geometry_to_json(const Row& row) {
  const net::Network& network = row.network;
  Json json = Json::object();
  json["scales"] = Json::array();
  for (std::size_t i = 0; i < network.scales.size(); ++i) {
    json["scales"].push_back(scale_to_json(row, i, network.scales[i]));
  }
  json["output"] = network.output_layers > 0
                       ? scale_to_json(row, network.scales.size(), network.output_layers)
                       : Json();
  return json;
}

std::string render_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    Json json = row_to_json(row);
    json["geometry"] = geometry_to_json(row);
    list.push_back(std::move(json));
  }
  return dump_json(list);
}

// Tells which methods agree. The estimate is compared by its minimum, because its maximum counts
// one token more by convention; the others are compared at every position of a segment.
std::string agreement(const std::optional<net::ContextLength>& paper,
                      const net::ContextLength& exact, const net::ContextLength& measured,
                      bool same_positions) {
  const bool paper_exact = paper && paper->minimum == exact.minimum;
  if (same_positions) return paper_exact ? "paper=exact=measured" : "exact=measured";
  if (paper_exact) return "paper=exact";
  return paper && paper->minimum == measured.minimum ? "paper=measured" : "none";
}

void add_measured(const Request& request, std::vector<Row>& rows) {
  if (!request.has_sizes) {
    throw UsageError("--method measured", "runs a network, and its sizes are unknown",
                     "give --d-model, --n-head, --d-head and --d-inner, --preset or --model");
  }
  const std::vector<std::vector<std::int64_t>> measured = measure(request);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    const std::vector<std::int64_t> lengths = net::exact_lengths(row.geometry);
    const net::ContextLength exact = net::range_of(lengths);
    std::optional<net::ContextLength> paper;
    if (net::has_paper_context(row.network)) {
      paper = net::paper_context(row.network, row.geometry.lengths);
    }
    row.context = net::range_of(measured[i]);
    row.more["paper_min"] = paper ? Json(paper->minimum) : Json();
    row.more["paper_max"] = paper ? Json(paper->maximum) : Json();
    row.more["exact_min"] = exact.minimum;
    row.more["exact_max"] = exact.maximum;
    row.more["measured_min"] = row.context.minimum;
    row.more["measured_max"] = row.context.maximum;
    row.more["agree"] = agreement(paper, exact, row.context, measured[i] == lengths);
  }
}

}  // namespace

std::vector<Row> make_rows(const Request& request, const std::string& method) {
  std::vector<Row> rows;
  for (const net::Lengths& lengths : request.lengths) {
    const net::Network& network = request.network;
    Row row;
    row.network = network;
    row.has_sizes = request.has_sizes;
    row.geometry = net::make_geometry(network, lengths);
    if (method == "paper" && !net::has_paper_context(network)) {
      throw UsageError("--method paper",
                       "the paper's formula is for queries that see the whole window, and "
                       "same_length or attention_window limits them here",
                       "use --method exact");
    }
    row.context = method == "paper" ? net::paper_context(network, lengths)
                                    : net::exact_context(network, lengths);
    row.method = method;
    row.cost = net::cost(network, lengths);
    rows.push_back(std::move(row));
    for (std::size_t i = 0; i < network.scales.size(); ++i) {
      const net::Stage& stage = rows.back().geometry.last_input(i);
      log_debug("segment {}, memory {}: granularity {}: {} layers, segment {}, memory {}, shift {}",
                lengths.segment, lengths.memory, stage.granularity, network.scales[i],
                stage.segment, stage.memory, stage.shift);
    }
  }
  if (method == "measured") add_measured(request, rows);
  return rows;
}

std::string render(const std::vector<Row>& rows, const Options& options) {
  TableText table = table_of(
      options, {"arch", "segment", "memory", "compressed_memory", "min", "max", "mean", "paper_min",
                "exact_min", "measured_min", "agree", "scales", "output_layers", "rate",
                "parameters", "flops_per_token", "memory_states"});
  if (options.text("format") == "json") return render_json(rows);
  std::string text;
  for (const Row& row : rows) text += table.lines(row_to_json(row));
  return text;
}

}  // namespace ql::ctx
