// Reads a command line of qlctx, and makes the table that qlctx prints. The table has a row for
// every combination of lengths or, from qlctx plan, for every plan.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/options.h"
#include "net/context.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "net/model_file.h"
#include "net/network.h"

namespace ql::ctx {

// Holds the network and the lengths that the command line of qlctx asks about.
struct Request {
  net::Network network;
  std::string checkpoint;             // the folder of --model with the weights, or empty
  bool has_sizes = false;             // d_model etc. are known: costs can be counted
  std::vector<net::Lengths> lengths;  // all combinations; the segment varies slowest
};

// These are the names that --arch accepts, in the order in which qlctx plan tries them.
inline const std::vector<std::string> kArchitectures{"ql", "xl", "compressive", "multiscale",
                                                     "vanilla"};

// Returns the options that describe the network and the lengths, with size_options() at the end.
std::vector<Option> request_options();
// Returns the options for the sizes of a network, such as --d-model.
std::vector<Option> size_options();

// Throws UsageError for options that contradict each other, ConfigError for a network that cannot
// be built, FormatError for a damaged checkpoint or preset. Does not check the lengths.
Request make_request(const Options& options);

// Holds what a file that an option names says about a network.
struct Source {
  std::string name;        // of the file, for messages
  bool is_preset = true;   // also a checkpoint that --preset names
  net::Preset preset;      // with the vocabulary of --vocab-size, if the file is a preset
  std::string checkpoint;  // the folder with the weights, or empty
};

// Reads each named file only once, because it may be a pipe.
class Sources {
 public:
  explicit Sources(const Options& options) : options_(options) {}
  // Returns what the file of --model, --preset or --relative-to says. Throws errors as
  // make_request() does.
  const Source& of(const std::string& option);

 private:
  Source read(const std::string& option) const;
  const Options& options_;
  std::map<std::string, Source> read_;
};

// Holds the candidate networks of one architecture; a search of qlctx plan has several such
// families.
struct Family {
  std::string name;
  std::vector<net::Network> networks;
};
using Search = std::vector<Family>;

// Returns what the command line of qlctx plan asks about. Throws errors as make_request() does.
Search make_search(const Options& options, Sources& sources);

// Holds what a plan has to reach: a context, or the longest context for these operations.
struct Goal {
  std::int64_t context = 0;  // tokens; 0 for a goal of operations
  double operations = 0;     // of a training, per token
  double unit = 0;           // such operations of the network of --relative-to; 0 without it
};

// Returns the goal of qlctx plan. Throws errors as make_request() does, and UsageError when costs
// are compared and a network of `search` has no vocab_size.
Goal make_goal(const Options& options, const Search& search, Sources& sources);

// Returns the file from which the searched networks have their sizes, or an empty Source if the
// command line has the sizes.
Source source_of_sizes(const Options& options, Sources& sources);

// Returns, for each combination of lengths, the context length at each position of a segment,
// measured (nn/measure.h) with the checkpoint's weights or with random weights. Runs qlctx-measure,
// which must be in libexec (installed.h) and writes its messages to standard error. Throws Error
// when that program is missing or fails, Interrupted when it was stopped.
std::vector<std::vector<std::int64_t>> measure(const Request& request);

// A row of the table is a combination of lengths or, from qlctx plan, a plan.
struct Row {
  net::Network network;
  bool has_sizes = false;  // d_model etc. are known: costs are printed
  net::Geometry geometry;
  net::ContextLength context;
  std::string method;
  net::Cost cost;
  Json more = Json::object();  // further columns, which depend on the method or the command
  Json cone{};                 // cone_to_json() of --position; null without this option
};

// `method` is "paper", "exact" or "measured". Throws ConfigError for the first combination that
// cannot be built. Throws UsageError for "measured" if the sizes of the network are unknown, and
// for "paper" if its formula does not hold. Checks the columns and the position of `options` before
// it measures. Also throws the errors of measure().
std::vector<Row> make_rows(const Request& request, const std::string& method,
                           const Options& options);

// Returns the columns of qlctx, all methods together, or those of qlctx plan.
std::vector<std::string> column_names(bool of_plan);

// Returns the rows in the format that --format names. "tsv" is a header line and one tab-separated
// line per row, with "-" for unknown and inapplicable values. "json" is a list with one object per
// row; the keys of an object are all columns of the TSV, "geometry" and, with --position, "cone".
std::string render(const std::vector<Row>& rows, const Options& options);

// Returns the states on which the output state at `position` (1 to n_s) depends, at every stage
// (net/geometry.h); qlctx(1) lists the keys. Throws UsageError for a position outside the segment.
Json cone_to_json(const Row& row, std::int64_t position);

// Finds plans: networks with lengths that reach a given context, the cheapest first, or those with
// the longest context for a given cost. Returns them in the format that --format names, and writes
// the preset of --write. Throws errors as make_request() does, and Error when no geometry reaches
// the goal.
std::string plan(const Options& options);

}  // namespace ql::ctx
