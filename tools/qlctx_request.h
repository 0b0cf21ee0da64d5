// The network and the lengths that a qlctx command line asks about.
#pragma once

#include <vector>

#include "base/options.h"
#include "net/network.h"

namespace ql::ctx {

struct Request {
  net::Network network;
  bool has_sizes = false;             // d_model and so on are known: costs can be counted
  std::vector<net::Lengths> lengths;  // every combination of the lists, the segment slowest
};

// The part of the option table that describes the network and the lengths.
std::vector<Option> request_options();

// Throws UsageError for options that do not go together, ConfigError for a network that cannot be
// built, FormatError for a damaged checkpoint or preset. Lengths are not checked here.
Request make_request(const Options& options);

}  // namespace ql::ctx
