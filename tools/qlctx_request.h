// Reads the network and the lengths that a qlctx command line asks about.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "net/network.h"

namespace ql::ctx {

struct Request {
  net::Network network;
  std::string checkpoint;             // of --model: where the weights are; else empty
  bool has_sizes = false;             // d_model and so on are known: costs can be counted
  std::vector<net::Lengths> lengths;  // every combination of the lists, the segment slowest
};

// The names of --arch, in the order in which they are tried.
inline const std::vector<std::string> kArchitectures{"ql", "xl", "compressive", "multiscale",
                                                     "vanilla"};

// request_options() is the part of the option table that describes the network and the lengths.
// size_options() is the part of it that gives the sizes.
std::vector<Option> request_options();
std::vector<Option> size_options();

// Puts the sizes of size_options() into `network`. False when none of them was given; throws
// UsageError when some are missing of those that are needed together.
bool read_sizes(const Options& options, net::Network& network);
// Throws UsageError when one of these options or of size_options() was given: --`source` names a
// file that says the same.
void refuse_beside_file(const Options& options, const std::string& source,
                        const std::vector<std::string>& names);

// Throws UsageError for options that do not go together, ConfigError for a network that cannot be
// built, FormatError for a damaged checkpoint or preset. Lengths are not checked here.
Request make_request(const Options& options);

}  // namespace ql::ctx
