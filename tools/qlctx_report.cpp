// Makes the rows that qlctx and qlctx plan print, and writes them as TSV or JSON text.

#include <optional>
#include <tuple>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/tool.h"
#include "installed.h"
#include "net/model_file.h"
#include "net/plan.h"
#include "qlctx_report.h"

namespace ql::ctx {

namespace {

// Returns a row as JSON. The TSV is made from the same object, so the values of the two formats
// cannot differ.
Json row_to_json(const Row& row) {
  const net::Network& network = row.network;
  // Operations may exceed 64 bits.
  const auto operations = [&](double count) {
    count = std::round(count);
    return count < 0x1p63 ? Json(static_cast<std::int64_t>(count)) : Json(count);
  };
  const auto if_counted = [&](const auto& count) { return row.has_sizes ? Json(count) : Json(); };
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
  json["parameters"] = if_counted(row.cost.parameters);
  json["flops_per_token"] = if_counted(operations(row.cost.forward_flops_per_token));
  json["memory_states"] = row.cost.memory_states;
  json.update(row.more);
  json["training_flops_per_token"] = if_counted(operations(row.cost.training_flops_per_token));
  return json;
}

// Describes the scale with index `scale`. The index after the last scale stands for the output
// block.
Json scale_to_json(const Row& row, std::size_t scale, std::int64_t layers) {
  const net::Stage& stage = row.geometry.last_input(scale);
  return {{"layers", layers},
          {"segment", stage.segment},
          {"memory", stage.memory},
          {"granularity", stage.stride},
          {"shift", stage.new_states}};
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
    if (!row.cone.is_null()) json["cone"] = row.cone;
    list.push_back(std::move(json));
  }
  return dump_json(list);
}

// Returns the names of the methods that agree, or "none". The paper's estimate is compared by its
// minimum, because its maximum counts one token more by convention. The exact and measured lengths
// are compared at every position of a segment.
std::string agreement(const std::optional<net::ContextLength>& paper,
                      const net::ContextLength& exact, const net::ContextLength& measured,
                      bool same_positions) {
  const bool paper_exact = paper && paper->minimum == exact.minimum;
  if (same_positions) return paper_exact ? "paper=exact=measured" : "exact=measured";
  if (paper_exact) return "paper=exact";
  return paper && paper->minimum == measured.minimum ? "paper=measured" : "none";
}

TableText make_table(const Options& options) {
  // The rows of a plan are sorted by operations and states.
  if (options.command().name == "plan") {
    return table_of(options,
                    {"arch", "segment", "memory", "flops_per_token", "memory_states", "scales",
                     "output_layers", "rate", "compressed_memory", "min", "max", "parameters",
                     "memory_bytes", "training_flops_per_token", "relative_cost"});
  }
  return table_of(
      options, {"arch", "segment", "memory", "compressed_memory", "min", "max", "mean", "paper_min",
                "exact_min", "measured_min", "agree", "scales", "output_layers", "rate",
                "parameters", "flops_per_token", "memory_states"});
}

void add_lengths(Row& row, const std::vector<std::int64_t>& measured) {
  const std::vector<std::int64_t> lengths = net::exact_lengths(row.geometry);
  const net::ContextLength exact = net::range_of(lengths);
  std::optional<net::ContextLength> paper;
  if (net::has_paper_context(row.network)) {
    paper = net::paper_context(row.network, row.geometry.lengths);
  }
  row.context = net::range_of(measured);
  row.more["paper_min"] = paper ? Json(paper->minimum) : Json();
  row.more["paper_max"] = paper ? Json(paper->maximum) : Json();
  row.more["exact_min"] = exact.minimum;
  row.more["exact_max"] = exact.maximum;
  row.more["measured_min"] = row.context.minimum;
  row.more["measured_max"] = row.context.maximum;
  row.more["agree"] = agreement(paper, exact, row.context, measured == lengths);
}

void add_measured(const Request& request, std::vector<Row>& rows, const Options& options) {
  if (!request.has_sizes) {
    throw UsageError(
        "--method measured", "runs the network, whose sizes are unknown",
        "give --preset, --model, or all of --d-model, --n-head, --d-head and --d-inner");
  }
  // Measuring takes minutes, so the columns are checked first.
  Row example = rows.front();
  add_lengths(example, net::exact_lengths(example.geometry));
  make_table(options).check(row_to_json(example));
  const std::vector<std::vector<std::int64_t>> measured = measure(request);
  for (std::size_t i = 0; i < rows.size(); ++i) add_lengths(rows[i], measured[i]);
}

// Adds the columns of qlctx plan. `unit` is the cost of the network of --relative-to, or 0.
void add_plan(Row& row, double unit) {
  row.more["memory_bytes"] = row.cost.memory_numbers * static_cast<std::int64_t>(sizeof(float));
  row.more["relative_cost"] = unit > 0 ? Json(row.cost.training_flops_per_token / unit) : Json();
}

// Returns a row with all columns, of a small network.
Row example_row(bool of_plan) {
  net::Network network;
  network.architecture = net::Architecture::kTransformerXl;
  network.scales = {1};
  const net::Lengths lengths{1, 1, 0};
  Row row{network,
          false,
          net::make_geometry(network, lengths),
          net::exact_context(network, lengths),
          "exact",
          net::cost(network, lengths)};
  if (of_plan) {
    add_plan(row, 0);
  } else {
    add_lengths(row, net::exact_lengths(row.geometry));
  }
  return row;
}

}  // namespace

std::vector<Row> make_rows(const Request& request, const std::string& method,
                           const Options& options) {
  std::vector<Row> rows;
  for (const net::Lengths& lengths : request.lengths) {
    const net::Network& network = request.network;
    net::Geometry geometry = net::make_geometry(network, lengths);
    if (method == "paper" && !net::has_paper_context(network)) {
      throw UsageError("--method paper",
                       fmt::format("the paper's formula assumes that queries see all keys of the "
                                   "window, but {} is set",
                                   network.same_length ? "same_length" : "attention_window"),
                       "use --method exact");
    }
    const net::ContextLength context = method == "paper" ? net::paper_context(network, lengths)
                                                         : net::exact_context(network, lengths);
    rows.push_back({network, request.has_sizes, std::move(geometry), context, method,
                    net::cost(network, lengths)});
    if (options.given("position")) {
      rows.back().cone = cone_to_json(rows.back(), options.integer("position"));
    }
    for (std::size_t i = 0; i < network.scales.size(); ++i) {
      const net::Stage& stage = rows.back().geometry.last_input(i);
      log_debug("segment {}, memory {}: granularity {}: {} layers, segment {}, memory {}, shift {}",
                lengths.segment, lengths.memory, stage.stride, network.scales[i], stage.segment,
                stage.memory, stage.new_states);
    }
  }
  if (method == "measured") add_measured(request, rows, options);
  return rows;
}

std::vector<std::string> column_names(bool of_plan) {
  return keys_of(row_to_json(example_row(of_plan)));
}

std::string render(const std::vector<Row>& rows, const Options& options) {
  TableText table = make_table(options);
  if (options.text("format") == "json") return render_json(rows);
  std::string text;
  for (const Row& row : rows) table.expect(row_to_json(row));
  for (const Row& row : rows) text += table.lines(row_to_json(row));
  return text;
}

namespace {

std::vector<net::Plan> find_plans(const Search& search, const Goal& goal, const Options& options) {
  const std::vector<std::int64_t> segments = options.integers("segment");
  const auto limit = static_cast<std::size_t>(options.integer("limit"));
  std::vector<net::Plan> all;
  std::vector<std::string> without;
  for (const Family& family : search) {
    const std::vector<net::Plan> plans =
        goal.context > 0 ? net::cheapest_plans(family.networks, goal.context, segments)
                         : net::longest_plans(family.networks, goal.operations, limit, segments);
    all.insert(all.end(), plans.begin(), plans.begin() + std::min(limit, plans.size()));
    if (plans.empty()) without.push_back(family.name);
  }
  const std::string names = fmt::format("{}", fmt::join(without, ", "));
  const std::string nothing =
      goal.context > 0
          ? fmt::format("no network reaches a minimum context length of {}",
                        with_thousands(goal.context))
          : fmt::format(
                "no network that sees past tokens trains with at most {} operations per token",
                goal.operations < 1e18 ? with_thousands(static_cast<std::int64_t>(goal.operations))
                                       : fmt::format("{:.6g}", goal.operations));
  if (all.empty()) {
    throw Error(names, nothing,
                fmt::format("possible reasons: {}no memory (multiscale, vanilla), {}fewer --layers "
                            "than scales, or a --segment that is not a multiple of the coarsest "
                            "granularity (in a compressive network, of the compression rate)",
                            goal.context > 0 ? "" : "too small a cost, ",
                            goal.context > 0 ? "a small attention_window, " : ""));
  }
  if (!without.empty()) log_info("{}: {}", names, nothing);
  std::stable_sort(all.begin(), all.end(), [&](const net::Plan& a, const net::Plan& b) {
    // With a goal of operations the contexts differ, and longer ones come first.
    const std::int64_t longer = goal.context > 0 ? 0 : b.context.minimum - a.context.minimum;
    return std::tie(longer, a.cost.forward_flops_per_token, a.cost.memory_states) <
           std::make_tuple(std::int64_t{0}, b.cost.forward_flops_per_token, b.cost.memory_states);
  });
  return all;
}

Row row_of(const net::Plan& plan, double unit) {
  net::Geometry geometry = net::make_geometry(plan.network, plan.lengths);
  Row row{plan.network, true, std::move(geometry), plan.context, "exact", plan.cost};
  add_plan(row, unit);
  return row;
}

// Returns the batch of the file's training; 0 if it has none.
std::int64_t batch_of(const Source& source) {
  const JsonObject training(source.preset.training, source.name + ": training");
  return training.has("batch") ? training.integer("batch", 1) : 0;
}

// Returns the text of the preset of --write: the network and the lengths of `row`, trained as
// `source` is. A step gets as many tokens as in `source`, so that equal steps have costs that can
// be compared.
std::string preset_text(const Row& row, const Source& source) {
  net::Preset preset = source.preset;
  if (const std::int64_t batch = batch_of(source); batch > 0) {
    const double tokens =
        static_cast<double>(batch) * static_cast<double>(preset.network.lengths.segment);
    const auto segment = static_cast<double>(row.geometry.lengths.segment);
    preset.training["batch"] = std::max<std::int64_t>(1, std::llround(tokens / segment));
  }
  // Lengths of validation would be those of another network.
  for (const char* key : {"eval_segment", "eval_memory", "eval_compressed_memory"}) {
    preset.training.erase(key);
  }
  preset.about = fmt::format("qlctx plan: {}, at least {} tokens of context",
                             net::to_short_text(row.network.architecture), row.context.minimum);
  preset.network = row.network;
  preset.network.lengths = row.geometry.lengths;
  return dump_json(net::preset_to_json(preset));
}

}  // namespace

std::string plan(const Options& options) {
  // The search may take minutes, so the columns and --write are checked first.
  make_table(options).check(row_to_json(example_row(/*of_plan=*/true)));
  if (options.given("write") && options.text("write") == "-") {
    throw UsageError("--write", "standard output gets the rows, not the preset",
                     "name a file, as in --write far.json");
  }
  std::optional<AtomicFile> file;
  if (options.given("write")) {
    for (const char* option : {"model", "preset", "relative-to"}) {
      if (!options.given(option)) continue;
      const std::filesystem::path read = preset_file(options.text(option));
      refuse_to_replace(options.text("write"), net::checkpoint_files(read), "--write");
    }
    file.emplace(options.text("write"));
  }
  Sources sources(options);
  const Search search = make_search(options, sources);
  const Goal goal = make_goal(options, search, sources);
  if (file) batch_of(source_of_sizes(options, sources));
  std::vector<Row> rows;
  for (const net::Plan& found : find_plans(search, goal, options)) {
    rows.push_back(row_of(found, goal.unit));
  }
  if (file) {
    file->write(preset_text(rows.front(), source_of_sizes(options, sources)));
    file->commit();
  }
  return render(rows, options);
}

}  // namespace ql::ctx
