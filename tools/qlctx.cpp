// qlctx: context length and cost of a network, from its geometry.
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/tool.h"
#include "qlctx_plan.h"
#include "qlctx_report.h"
#include "qlctx_request.h"
#include "qlctx_svg.h"

namespace {

ql::ToolTable make_table() {
  ql::Command command;
  command.summary = "context length and cost of a network of the Transformer-QL family";
  command.options = ql::ctx::request_options();
  ql::Option method;
  method.name = "method";
  method.type = ql::OptionType::kChoice;
  method.value_name = "NAME";
  method.help =
      "How context lengths are found: by the formula behind the paper's tables, exactly, from what "
      "every output state depends on, or measured by gradients of the running network, all three "
      "side by side.";
  method.default_value = "paper";
  method.choices = {"paper", "exact", "measured"};
  command.options.push_back(method);
  ql::Option format;
  format.name = "format";
  format.type = ql::OptionType::kChoice;
  format.value_name = "NAME";
  format.help =
      "Print tab-separated columns under a header, or JSON, or draw one network and what its "
      "output "
      "depends on.";
  format.default_value = "tsv";
  format.choices = {"tsv", "json", "svg"};
  command.options.push_back(format);
  ql::Option position;
  position.name = "position";
  position.type = ql::OptionType::kInteger;
  position.value_name = "N";
  position.help =
      "Draw what the output state at this place of the segment depends on, 1 being the first. The "
      "last when left out.";
  position.minimum = 1;
  command.options.push_back(position);
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
  return {"qlctx", command.summary, {command, ql::ctx::plan_command()}};
}

// The 0-based position that --position asks for, in a request for a drawing.
std::int64_t drawn_position(const ql::Options& options, const ql::ctx::Request& request) {
  if (request.lengths.size() != 1) {
    throw ql::UsageError(
        "--format svg",
        fmt::format("draws one network, the lengths make {}", request.lengths.size()),
        "give one segment, one memory and one compressed memory");
  }
  if (options.given("method") && options.text("method") != "exact") {
    throw ql::UsageError("--method", "a drawing shows the exact dependencies", "leave it out");
  }
  const std::int64_t segment = request.lengths.front().segment;
  const std::int64_t position = options.has("position") ? options.integer("position") : segment;
  if (position > segment) {
    throw ql::UsageError("--position",
                         fmt::format("the segment has {} positions, found {}", segment, position));
  }
  return position - 1;
}

std::string answer(const ql::Options& options) {
  const ql::ctx::Request request = ql::ctx::make_request(options);
  const std::string format = options.text("format");
  if (format == "svg") {
    const std::int64_t position = drawn_position(options, request);
    return ql::ctx::draw_svg(ql::ctx::make_rows(request, "exact").front(), position);
  }
  if (options.given("position")) {
    throw ql::UsageError("--position", "only a drawing has a chosen position", "add --format svg");
  }
  return ql::ctx::render(ql::ctx::make_rows(request, options.text("method")), format);
}

void report(const ql::Options& options) {
  if (options.command().name == "plan") {
    ql::ctx::plan(options);
    return;
  }
  const std::string text = answer(options);
  ql::OutputStream output(false);
  output.write(text);
  output.close();
}

const ql::ToolTable& table() {
  static const ql::ToolTable kTable = make_table();
  return kTable;
}

}  // namespace

int main(int argc, char** argv) { return ql::run_tool(table, argc, argv, report); }
