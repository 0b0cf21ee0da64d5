// Reads what a qlctx command line asks about, and makes what qlctx prints: a row for every
// combination of lengths, and for every plan.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/options.h"
#include "net/context.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "net/network.h"

namespace ql::ctx {

// A request of qlctx is the network and the lengths on its command line.

struct Request {
  net::Network network;
  std::string checkpoint;             // the folder of --model with the weights, or empty
  bool has_sizes = false;             // d_model etc. are known: costs can be counted
  std::vector<net::Lengths> lengths;  // all combinations; the segment varies slowest
};

// These are the names that --arch accepts, in the order in which networks are tried.
inline const std::vector<std::string> kArchitectures{"ql", "xl", "compressive", "multiscale",
                                                     "vanilla"};

// Returns the part of the option table that describes the network and the lengths, and the part of
// it that has the sizes.
std::vector<Option> request_options();
std::vector<Option> size_options();

// Throws UsageError for options that contradict each other, ConfigError for a network that cannot
// be built, FormatError for a damaged checkpoint or preset. Does not check the lengths.
Request make_request(const Options& options);

// Returns, for each lengths of the request, the context length at each position of a segment, as
// nn/measure.h finds them in the checkpoint's weights or in random ones. Runs qlctx-measure, which
// must be installed, or in the same folder as qlctx. Its messages go to standard error. Throws
// Error when it is missing or fails, Interrupted when it was stopped.
std::vector<std::vector<std::int64_t>> measure(const Request& request);

// Makes the output of qlctx: a row for every combination of lengths, or for every plan of qlctx
// plan.

struct Row {
  net::Network network;
  bool has_sizes = false;  // true: costs were counted
  net::Geometry geometry;
  net::ContextLength context;
  std::string method;
  net::Cost cost;
  Json more = Json::object();  // further columns of a method or a command
};

// `method` is "paper", "exact" or "measured". Throws ConfigError for the first combination that
// cannot be built, UsageError for "measured" and a network without sizes, and the errors of
// measure().
std::vector<Row> make_rows(const Request& request, const std::string& method);

// Returns "tsv": a header line and one line per row, tab-separated, with "-" for unknown and
// inapplicable values; or "json": a list with one object per row, whose keys are the TSV's columns
// and "geometry".
std::string render(const std::vector<Row>& rows, const Options& options);

// Returns a standalone SVG 1.1 file of the states at every place, in the segment and in memories,
// and the cone of the states that one output state depends on. Tokens run from left to right, every
// row is a place of the network, and a state is as wide as the tokens it stands for. `position` is
// 0 to n_s - 1. Every state of a segment is one element of class "segment", of a memory "memory",
// of a compressed memory "compressed"; those of the cone also have the class "in". Throws Error for
// a network that is too large for a drawing.
std::string draw_svg(const Row& row, std::int64_t position);

// qlctx plan finds the geometries that reach a given context, the cheapest first.

// Returns the plans as text. Throws the errors of make_request(), and Error when no geometry
// reaches the context.
std::string plan(const Options& options);

}  // namespace ql::ctx
