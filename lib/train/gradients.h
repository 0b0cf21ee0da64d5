// Joins the gradients of a step, which every slice of the batch computes for itself.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "nn/named_tensor.h"
#include "train/divergence.h"

namespace ql::train {

// The gradient of every parameter, in the parameters' order. It is undefined where the loss does
// not depend on the parameter.
using Gradients = std::vector<at::Tensor>;

// Adds up the slices' gradients, in the slices' order, as the parameters' grad(), and returns the
// L2 norm of all of them together. This is one pass over memory, and the sums have the same order
// for any number of threads. The tensors of the first slice that has a gradient are written to.
double join_gradients(const std::vector<nn::NamedTensor>& parameters,
                      const std::vector<Gradients>& slices);

// Returns the L2 norms of the parameters' grad() by groups, in the parameters' order: "layers.N"
// for each layer, else the first part of the name ("word_emb"). They are for messages when
// something went wrong.
std::vector<GroupNorm> group_norms(const std::vector<nn::NamedTensor>& parameters);

}  // namespace ql::train
