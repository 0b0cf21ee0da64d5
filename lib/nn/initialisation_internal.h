// Initial values of the parameters (paper, appendix E, and the public Transformer-XL code).
#pragma once

#include <cstdint>

#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// Draws weights, embeddings, u and v from normal(0, init_std), layer norm weights from normal(1,
// init_std), and the projections of embeddings narrower than d_model from normal(0, proj_init_std).
// All other biases become 0. Every number is a function of (seed, parameter, index).
void initialise(Parameters& parameters, const net::Network& network, std::uint64_t seed);

}  // namespace ql::nn
