// qlctx prints context lengths and costs of networks.

#include "base/error.h"
#include "base/tool.h"
#include "qlctx_report.h"
#include "tables.h"

static std::string answer(const ql::Options& options) {
  if (options.command().name == "plan") return ql::ctx::plan(options);
  if (options.given("position") && options.text("format") != "json") {
    throw ql::UsageError("--position", "applies to --format json only", "add --format json");
  }
  const ql::ctx::Request request = ql::ctx::make_request(options);
  return ql::ctx::render(ql::ctx::make_rows(request, options.text("method"), options), options);
}

static void report(const ql::Options& options) { ql::print(answer(options)); }

int main(int argc, char** argv) { return ql::run_tool(qlctx_table, argc, argv, report); }
