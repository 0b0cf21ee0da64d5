// qlctx prints context lengths and costs of networks, and draws the dependencies of a network.
#include <fmt/format.h>

#include "base/error.h"
#include "base/tool.h"
#include "qlctx_report.h"
#include "tables.h"

// Returns the position to draw, counted from 0; by default the last one.
static std::int64_t drawn_position(const ql::Options& options, const ql::ctx::Request& request) {
  if (request.lengths.size() != 1) {
    throw ql::UsageError(
        "--format svg",
        fmt::format("draws one combination of lengths, but {} are given", request.lengths.size()),
        "give a single length to each of --segment, --memory and --compressed-memory");
  }
  if (options.given("method") && options.text("method") != "exact") {
    throw ql::UsageError("--method", "must be exact with --format svg", "leave --method out");
  }
  const std::int64_t segment = request.lengths.front().segment;
  const std::int64_t position = options.has("position") ? options.integer("position") : segment;
  if (position > segment) {
    throw ql::UsageError(
        "--position",
        fmt::format("expected 1 to {}, the segment's length, found {}", segment, position));
  }
  return position - 1;
}

static std::string answer(const ql::Options& options) {
  if (options.command().name == "plan") return ql::ctx::plan(options);
  const ql::ctx::Request request = ql::ctx::make_request(options);
  const std::string format = options.text("format");
  if (format == "svg") {
    options.refuse({"columns"}, "--{}", "applies to tables, not to --format svg",
                   "give --format tsv, or leave --{} out");
    const std::int64_t position = drawn_position(options, request);
    return ql::ctx::draw_svg(ql::ctx::make_rows(request, "exact", options).front(), position);
  }
  if (options.given("position")) {
    throw ql::UsageError("--position", "applies to --format svg only", "add --format svg");
  }
  return ql::ctx::render(ql::ctx::make_rows(request, options.text("method"), options), options);
}

static void report(const ql::Options& options) { ql::print(answer(options)); }

int main(int argc, char** argv) { return ql::run_tool(qlctx_table, argc, argv, report); }
