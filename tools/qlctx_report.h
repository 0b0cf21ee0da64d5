// What qlctx prints: one row for every combination of lengths.
#pragma once

#include <string>
#include <vector>

#include "net/context.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "qlctx_request.h"

namespace ql::ctx {

struct Row {
  net::Geometry geometry;
  net::ContextLength context;
  net::Cost cost;
};

// `method` is "paper" or "exact". Throws ConfigError for the first combination that cannot be
// built.
std::vector<Row> make_rows(const Request& request, const std::string& method);

// A header line and one line per row, tab-separated; "-" where nothing is known or nothing applies.
std::string render_tsv(const Request& request, const std::string& method,
                       const std::vector<Row>& rows);

// A list with one object per row: the keys are the TSV's columns and "geometry".
std::string render_json(const Request& request, const std::string& method,
                        const std::vector<Row>& rows);

}  // namespace ql::ctx
