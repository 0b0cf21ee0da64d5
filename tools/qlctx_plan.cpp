#include "qlctx_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/tool.h"
#include "net/model_file.h"
#include "net/plan.h"
#include "preset_file.h"
#include "qlctx_report.h"
#include "qlctx_request.h"

namespace ql::ctx {
namespace {

// The search goes through families: for every architecture the networks that come into question.
struct Family {
  std::string name;
  std::vector<net::Network> networks;
};
using Search = std::vector<Family>;

// The sizes of the paper's SimpleBooks-2 networks (appendix E, table 4).
net::Network paper_sizes() {
  net::Network network;
  network.vocab_size = 11492;
  network.d_model = 256;
  network.n_head = 4;
  network.d_head = 64;
  network.d_inner = 1024;
  return network;
}

// A trained network stays as it is: only its lengths are free.
Search search_of_model(const Options& options) {
  refuse_beside_file(options, "model", {"preset", "arch", "layers", "rate"});
  const net::Network network = net::read_model_file(options.text("model")).network;
  return {{net::to_short_text(network.architecture), {network}}};
}

Search search_of_family(const Options& options) {
  net::Network network;
  std::int64_t layers = options.integer("layers");
  if (options.given("preset")) {
    refuse_beside_file(options, "preset", {});
    network = net::read_preset(preset_file(options.text("preset")), {}, {}).network;
    layers = options.given("layers") ? layers : network.layers();
  } else if (!read_sizes(options, network)) {
    log_info(
        "counted with the sizes of the paper's SimpleBooks-2 networks; give --d-model and the "
        "other "
        "sizes, --preset or --model for yours");
    network = paper_sizes();
  }
  if (!network.scale_widths.empty()) {
    log_info("scale_widths [{}]: networks of several scales have {} of these widths",
             fmt::join(network.scale_widths, ", "), network.scale_widths.size());
  }
  std::vector<std::string> names = options.texts("arch");
  if (names.empty()) names = kArchitectures;
  Search search;
  for (const std::string& name : kArchitectures) {
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      search.push_back(
          {name, net::divisions_of_layers(network, value_named<net::Architecture>(name, "--arch"),
                                          layers, options.integers("rate"))});
    }
  }
  return search;
}

std::vector<net::Plan> find_plans(const Search& search, const Options& options) {
  const std::int64_t context = options.integer("context");
  const std::vector<std::int64_t> segments = options.integers("segment");
  std::vector<net::Plan> all;
  std::vector<std::string> without;
  for (const Family& family : search) {
    const std::vector<net::Plan> plans = net::cheapest_plans(family.networks, context, segments);
    const auto found = static_cast<std::int64_t>(plans.size());
    all.insert(all.end(), plans.begin(), plans.begin() + std::min(options.integer("limit"), found));
    if (plans.empty()) without.push_back(family.name);
  }
  const std::string names = fmt::format("{}", fmt::join(without, ", "));
  const std::string nothing =
      fmt::format("nothing reaches back {} tokens", with_thousands(context));
  if (all.empty()) {
    throw Error(names, nothing,
                "networks without memory see nothing before a segment, several scales need two "
                "layers and segments that fit");
  }
  if (!without.empty()) log_info("{}: {}", names, nothing);
  std::stable_sort(all.begin(), all.end(), [](const net::Plan& a, const net::Plan& b) {
    return std::tie(a.cost.forward_flops_per_token, a.cost.memory_states) <
           std::tie(b.cost.forward_flops_per_token, b.cost.memory_states);
  });
  return all;
}

Row row_of(const net::Plan& plan) {
  Row row;
  row.network = plan.network;
  row.has_sizes = true;
  row.geometry = net::make_geometry(plan.network, plan.lengths);
  row.context = plan.context;
  row.method = "exact";
  row.cost = plan.cost;
  row.more["memory_bytes"] = plan.cost.memory_numbers * static_cast<std::int64_t>(sizeof(float));
  return row;
}

}  // namespace

void plan(const Options& options) {
  const Search search =
      options.given("model") ? search_of_model(options) : search_of_family(options);
  std::vector<Row> rows;
  for (const net::Plan& found : find_plans(search, options)) rows.push_back(row_of(found));
  print(render(rows, options));
}

}  // namespace ql::ctx
