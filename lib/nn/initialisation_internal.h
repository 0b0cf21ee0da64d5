// Initial values of the parameters (paper, appendix E, and the public Transformer-XL code).
#pragma once

#include <cstdint>

#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// Weights and embedding normal(0, init_std), layer norm weights normal(1, init_std), u and v
// normal(0, init_std), all other biases 0. Every number is a function of (seed, parameter, index).
// proj_init_std is for the projections of embeddings narrower than d_model; a network of full
// embeddings has none.
void initialise(Parameters& parameters, const net::Network& network, std::uint64_t seed);

}  // namespace ql::nn
