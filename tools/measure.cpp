// qlctx-measure prints measured context lengths as one JSON object. qlctx starts this program for
// --method measured, so that qlctx itself needs no LibTorch. qlctx-measure is installed in libexec,
// where users do not see it.
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/options.h"
#include "base/tool.h"
#include "machine/threads.h"
#include "net/network.h"
#include "nn/measure.h"
#include "nn/model.h"
#include "weights/weights.h"

static ql::ToolTable table() {
  using namespace ql;
  const std::string summary =
      "context lengths of a running network; use qlctx --method measured instead";
  return {"qlctx-measure",
          summary,
          {{"",
            summary,
            "",
            {make_option("model", OptionType::kFile, "CHECKPOINT",
                         "Measure the weights of this checkpoint folder."),
             make_option("network", OptionType::kText, "JSON",
                         "Measure this network of model.json with random weights."),
             required(repeatable(
                 make_integers("lengths", "N,N,N", "Segment, memory and compressed memory.")))},
            {{"qlctx-measure --model runs/ql/best --lengths 4,12,0", "what qlctx asks"}}}}};
}

static ql::nn::Model read_model(const ql::Options& options) {
  if (options.has("model") == options.has("network")) {
    throw ql::UsageError("", "expected either --model or --network");
  }
  if (options.has("model")) return ql::weights::load_model(options.text("model"), at::kDouble);
  const ql::Json json = ql::parse_json(options.text("network"), "--network");
  ql::nn::Model model(ql::net::network_from_json(ql::JsonObject(json, "--network")), at::kDouble);
  model.initialise(1);
  return model;
}

static void measure(const ql::Options& options) {
  const std::vector<std::int64_t> values = options.integers("lengths");
  if (values.size() % 3 != 0) {
    throw ql::UsageError("--lengths", "expected three lengths each time, as in 4,12,0");
  }
  // One thread is enough: in the backward passes of small matrix products, more threads would wait
  // longer than they work.
  ql::machine::set_up_threads(1);
  const ql::nn::Model model = read_model(options);
  // Only derivatives with respect to tokens are needed.
  for (const ql::nn::NamedTensor& parameter : model.parameters()) {
    at::Tensor tensor = parameter.tensor;
    tensor.requires_grad_(false);
  }
  ql::Json rows = ql::Json::array();
  for (std::size_t i = 0; i < values.size(); i += 3) {
    const ql::net::Lengths lengths{values[i], values[i + 1], values[i + 2]};
    const ql::nn::MeasuredContext measured = ql::nn::measure_context(model, lengths);
    rows.push_back({{"lengths", measured.lengths}, {"streams", measured.streams}});
  }
  ql::print(ql::dump_json({{"rows", std::move(rows)}}));
}

int main(int argc, char** argv) { return ql::run_tool(table, argc, argv, measure); }
