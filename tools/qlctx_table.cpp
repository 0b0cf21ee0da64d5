// Makes the option table of qlctx.

#include "base/options.h"
#include "base/tool.h"
#include "installed.h"
#include "net/network.h"
#include "net/plan.h"
#include "qlctx_report.h"
#include "tables.h"

using namespace ql;

static Command unnamed_command() {
  return {
      "",
      "context length and cost of a network of the Transformer-QL family",
      "",
      joined(
          ctx::request_options(),
          {make_choice(
               "method", "NAME",
               "How context lengths are found. paper: by the formula of the paper's tables. exact: "
               "by tracing which tokens every output state depends on. measured: by gradients of "
               "the running network; the lengths of all three methods are printed.",
               {"paper", "exact", "measured"}),
           make_choice("format", "NAME",
                       "tsv: tab-separated columns under a header. json: a list of objects.",
                       {"tsv", "json"}),
           columns_option([] { return ctx::column_names(/*of_plan=*/false); }),
           make_integer("position",
                        "Add to each object of --format json the states that one output state "
                        "depends on: the state at this position in the segment; 1 is the first. "
                        "The script plot draws them.",
                        "", 1)}),
      {{"qlctx --arch ql --scales 3,3 --output-layers 2 --segment 4 --memory 12,28",
        "two rows: the paper's Transformer-QL with a window of 16 and of 32"},
       {"qlctx --arch compressive --layers 8 --segment 4 --memory 6 --compressed-memory 6",
        "the paper's Compressive Transformer"},
       {"qlctx -m runs/ql/best --segment 8 --memory 24 --method exact",
        "a trained network with other lengths than in training"},
       {"qlctx -m runs/ql/best --method measured --columns "
        "exact_min,exact_max,measured_min,measured_max",
        "do the trained weights look back as far as the geometry lets them?"},
       {"qlctx --arch ql --scales 1,1,1 --output-layers 1 --segment 4 --memory 4 --format json "
        "--position 4 >5.json",
        "the states of the paper's figure 5, for the script plot to draw"}}};
}

static Command plan_command() {
  const std::vector<Option> searched{
      make_integer("context",
                   "Tokens that every output state must reach back: the exact minimum over the "
                   "positions of a segment is at least N. This option, --cost or --budget is "
                   "required.",
                   "", 1, net::kMaxPlannedContext),
      make_real("cost", "FACTOR",
                "Search the longest contexts of networks whose training takes at most FACTOR times "
                "the operations per token of the network of --relative-to, softmax included.",
                "", 1e-6, 1e6),
      offering(preset_names,
               make_option("relative-to", OptionType::kFile, "CHECKPOINT|PRESET",
                           "The network whose training costs 1, at its training lengths. Without "
                           "--model, --preset and sizes, its sizes and number of layers are those "
                           "of the searched networks.")),
      make_integer("budget",
                   "Search the longest contexts of networks whose training takes at most N "
                   "operations per token, softmax included.",
                   "", 1),
      repeatable(without_default(make_choice(
          "arch", "NAME", "Search this architecture; default: all.", ctx::kArchitectures))),
      offering(preset_names,
               with_letter('m', make_option("model", OptionType::kFile, "CHECKPOINT|PRESET",
                                            "Search lengths for the network of this checkpoint "
                                            "folder, its model.json, or a preset."))),
      offering(preset_names, make_option("preset", OptionType::kFile, "PRESET",
                                         "Take the sizes and the number of layers from this "
                                         "preset: a file, or the name of an installed one.")),
      make_integer("layers",
                   "Number of layers of every network, all scales and the output block together. "
                   "If a preset or the network of --relative-to gives the sizes, the default is "
                   "its number.",
                   "8", 1, 64),
      make_integers("rate", "C,...", "Compression rates to try.", "2", 2, net::kMaxRate),
      make_integers("segment", "N,...",
                    "Segment lengths to try; default: a grid of lengths up to the context.", "", 1,
                    net::kMaxLength),
      make_option(
          "write", OptionType::kFile, "FILE",
          "Write the network of the first row as a preset for qltrain --model. How it is "
          "trained comes from the preset or checkpoint that gives the sizes. A file that is "
          "read is not replaced.")};
  const std::vector<Option> printed{
      make_integer("limit", "Print at most N rows for each architecture.", "5", 1),
      make_choice("format", "NAME", "Print tab-separated columns under a header, or JSON.",
                  {"tsv", "json"}),
      columns_option([] { return ctx::column_names(/*of_plan=*/true); })};
  return {"plan",
          "the cheapest networks for a context, the farthest for a cost",
          "",
          joined(joined(searched, ctx::size_options()), printed),
          {{"qlctx plan --context 1000", "networks of 8 layers that look back 1000 tokens"},
           {"qlctx plan --context 300 -m runs/ql/best",
            "the lengths by which a trained network looks back 300 tokens"},
           {"qlctx plan --context 4k --arch ql --arch xl --layers 12 --rate 2,4",
            "two architectures of 12 layers"},
           {"qlctx plan --cost 1.2 --relative-to runs/ql/best --write far.json",
            "the longest context for a fifth more operations than runs/ql, as a preset"}}};
}

ToolTable qlctx_table() {
  const Command unnamed = unnamed_command();
  return {"qlctx", unnamed.summary, {unnamed, plan_command()}};
}
