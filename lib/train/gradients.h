// The gradients of a step, which the slices of its batch compute each for itself, as one.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "nn/named_tensor.h"
#include "train/divergence.h"

namespace ql::train {

// Of every parameter, in the parameters' order; undefined where the loss does not depend on it.
using Gradients = std::vector<at::Tensor>;

// Adds up the slices' gradients, in the slices' order, as the parameters' grad(); returns the L2
// norm of all of them together. One pass over memory; in the same order for any number of threads.
// The tensors of the first slice that has a gradient are written to.
double join_gradients(const std::vector<nn::NamedTensor>& parameters,
                      const std::vector<Gradients>& slices);

// The L2 norms of the parameters' grad() by groups, in the parameters' order: "layers.N" for each
// layer, else the first part of the name ("word_emb"). For messages, when something went wrong.
std::vector<GroupNorm> group_norms(const std::vector<nn::NamedTensor>& parameters);

}  // namespace ql::train
