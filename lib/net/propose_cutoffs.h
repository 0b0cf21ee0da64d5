// Divides a vocabulary so that an adaptive softmax has least to compute.
#pragma once

#include <cstdint>
#include <vector>

#include "net/network.h"

namespace ql::net {

// Multiplications of the softmax and its projections for a token on average, when id i occurs
// counts[i] times: the head for every token, a tail for the tokens of its cluster. `network` has
// passed check(); counts has vocab_size values, one at least positive.
double softmax_products(const Network& network, const std::vector<std::int64_t>& counts);

// Up to three cutoffs for this network's widths; the fewest that come within a tenth of the least
// products, and none where the plain softmax does.
std::vector<std::int64_t> propose_cutoffs(const Network& network,
                                          const std::vector<std::int64_t>& counts);

}  // namespace ql::net
