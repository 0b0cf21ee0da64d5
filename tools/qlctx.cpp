// qlctx: context length and cost of a network, from its geometry.
#include "base/file.h"
#include "base/tool.h"
#include "qlctx_plan.h"
#include "qlctx_report.h"
#include "qlctx_request.h"

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
  format.help = "Print tab-separated columns under a header, or JSON.";
  format.default_value = "tsv";
  format.choices = {"tsv", "json"};
  command.options.push_back(format);
  command.examples = {
      {"qlctx --arch ql --scales 3,3 --output-layers 2 --segment 4 --memory 12,28",
       "two rows: the paper's Transformer-QL with a window of 16 and of 32"},
      {"qlctx --arch compressive --layers 8 --segment 4 --memory 6 --compressed-memory 6",
       "the paper's Compressive Transformer"},
      {"qlctx -m runs/ql/best --segment 8 --memory 24 --method exact",
       "a trained network with other lengths than in training"},
      {"qlctx -m runs/ql/best --method measured | cut -f 2,3,16-",
       "do the trained weights look back as far as the geometry lets them?"},
  };
  return {"qlctx", command.summary, {command, ql::ctx::plan_command()}};
}

void report(const ql::Options& options) {
  if (options.command().name == "plan") {
    ql::ctx::plan(options);
    return;
  }
  const ql::ctx::Request request = ql::ctx::make_request(options);
  const std::vector<ql::ctx::Row> rows = ql::ctx::make_rows(request, options.text("method"));
  ql::OutputStream output(false);
  output.write(ql::ctx::render(rows, options.text("format")));
  output.close();
}

}  // namespace

int main(int argc, char** argv) {
  static const ql::ToolTable table = make_table();
  return ql::run_tool(table, argc, argv, report);
}
