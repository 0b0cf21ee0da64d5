#include "qlctx_table.h"

#include <string>
#include <utility>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"
#include "net/plan.h"
#include "qlctx_request.h"

namespace {

using ql::Command;
using ql::Option;
using ql::OptionType;

Option option(std::string name, OptionType type, std::string value_name, std::string help,
              std::string default_value = "") {
  Option made;
  made.name = std::move(name);
  made.type = type;
  made.value_name = std::move(value_name);
  made.help = std::move(help);
  made.default_value = std::move(default_value);
  return made;
}

Command unnamed_command() {
  Command command;
  command.summary = "context length and cost of a network of the Transformer-QL family";
  std::vector<Option>& options = command.options;
  options = ql::ctx::request_options();
  options.push_back(
      option("method", OptionType::kChoice, "NAME",
             "How context lengths are found: by the formula behind the paper's tables, exactly, "
             "from what every output state depends on, or measured by gradients of the running "
             "network, all three side by side.",
             "paper"));
  options.back().choices = {"paper", "exact", "measured"};
  options.push_back(option("format", OptionType::kChoice, "NAME",
                           "Print tab-separated columns under a header, or JSON, or draw one "
                           "network and what its output depends on.",
                           "tsv"));
  options.back().choices = {"tsv", "json", "svg"};
  options.push_back(option("position", OptionType::kInteger, "N",
                           "Draw what the output state at this place of the segment depends on, 1 "
                           "being the first. The last when left out."));
  options.back().minimum = 1;
  command.examples = {
      {"qlctx --arch ql --scales 3,3 --output-layers 2 --segment 4 --memory 12,28",
       "two rows: the paper's Transformer-QL with a window of 16 and of 32"},
      {"qlctx --arch compressive --layers 8 --segment 4 --memory 6 --compressed-memory 6",
       "the paper's Compressive Transformer"},
      {"qlctx -m runs/ql/best --segment 8 --memory 24 --method exact",
       "a trained network with other lengths than in training"},
      {"qlctx -m runs/ql/best --method measured | cut -f 2,3,16-",
       "do the trained weights look back as far as the geometry lets them?"},
      {"qlctx --arch ql --scales 1,1,1 --output-layers 1 --segment 4 --memory 4 --format svg "
       ">5.svg",
       "the paper's figure 5"},
  };
  return command;
}

Command plan_command() {
  Command command;
  command.name = "plan";
  command.summary = "geometries that reach a context length, the cheapest first";
  std::vector<Option>& options = command.options;
  options.push_back(option("context", OptionType::kInteger, "N",
                           "Tokens that every output state must reach back: the exact minimum "
                           "over the positions of a segment is at least N."));
  options.back().required = true;
  options.back().minimum = 1;
  options.back().maximum = ql::net::kMaxPlannedContext;
  options.push_back(
      option("arch", OptionType::kChoice, "NAME", "Search this architecture. All when left out."));
  options.back().choices = ql::ctx::kArchitectures;
  options.back().repeatable = true;
  options.push_back(option("model", OptionType::kFile, "CHECKPOINT",
                           "Search lengths for the trained network of this checkpoint folder or "
                           "its model.json."));
  options.back().letter = 'm';
  options.push_back(option("preset", OptionType::kFile, "FILE",
                           "Take the sizes and the number of layers from this preset."));
  options.push_back(option("layers", OptionType::kInteger, "N",
                           "Layers of every network, in all scales and the output block together. "
                           "With --preset, as many as it has when left out.",
                           "8"));
  options.back().minimum = 1;
  options.back().maximum = 64;
  options.push_back(
      option("rate", OptionType::kIntegerList, "C,...", "Compression rates to try.", "2"));
  options.back().minimum = 2;
  options.back().maximum = ql::net::kMaxRate;
  options.push_back(option("segment", OptionType::kIntegerList, "N,...",
                           "Segment lengths to try instead of all that come into question."));
  options.back().minimum = 1;
  options.back().maximum = ql::net::kMaxLength;
  const std::vector<Option> sizes = ql::ctx::size_options();
  options.insert(options.end(), sizes.begin(), sizes.end());
  options.push_back(
      option("limit", OptionType::kInteger, "N", "Rows of each architecture at most.", "5"));
  options.back().minimum = 1;
  options.push_back(option("format", OptionType::kChoice, "NAME",
                           "Print tab-separated columns under a header, or JSON.", "tsv"));
  options.back().choices = {"tsv", "json"};
  command.examples = {
      {"qlctx plan --context 1000", "networks of 8 layers that look back 1000 tokens"},
      {"qlctx plan --context 300 -m runs/ql/best",
       "the lengths by which a trained network looks back 300 tokens"},
      {"qlctx plan --context 4k --arch ql --arch xl --layers 12 --rate 2,4",
       "two architectures of 12 layers"},
  };
  return command;
}

}  // namespace

const ql::ToolTable& qlctx_table() {
  static const ql::ToolTable kTable = [] {
    const Command unnamed = unnamed_command();
    return ql::ToolTable{"qlctx", unnamed.summary, {unnamed, plan_command()}};
  }();
  return kTable;
}
