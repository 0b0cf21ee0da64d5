// Makes what qlctx prints: one row for every combination of lengths, or for every plan.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "net/context.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "net/network.h"
#include "qlctx_request.h"

namespace ql::ctx {

struct Row {
  net::Network network;
  bool has_sizes = false;  // costs were counted
  net::Geometry geometry;
  net::ContextLength context;
  std::string method;
  net::Cost cost;
  Json more = Json::object();  // further columns, of a method or a command
};

// `method` is "paper", "exact" or "measured". Throws ConfigError for the first combination that
// cannot be built, and for "measured" as measure() does, UsageError for a network without sizes.
std::vector<Row> make_rows(const Request& request, const std::string& method);

// "tsv": a header line and one line per row, tab-separated; "-" where nothing is known or nothing
// applies. "json": a list with one object per row, whose keys are the TSV's columns and "geometry".
std::string render(const std::vector<Row>& rows, const Options& options);

}  // namespace ql::ctx
