// Softmax cross entropy over the whole vocabulary, or over a vocabulary that is divided into
// clusters (adaptive softmax, Grave et al. 2017).
//
// On the CPU the [rows, ids] matrices exist only in parts, in a buffer for a block of rows
// (kernels/softmax_blocks.h). Where a gradient is wanted, all gradients are made in the same pass
// as the losses. So the forward pass leaves the gradients of states, weights, biases and
// projections to the backward pass. Other devices keep the logits.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::kernels {

// The head decides between the ids of the first cluster and the other clusters; a tail decides
// within its cluster. One cluster is the plain softmax. Gradients have the same shapes.
struct SoftmaxWeights {
  std::vector<std::int64_t> ends;       // of every cluster: one more than its last id
  std::vector<at::Tensor> weights;      // [ids, width]: one a cluster, or one for all ids
  std::vector<at::Tensor> biases;       // [ids], one for each of `weights`
  std::vector<at::Tensor> projections;  // [d_model, width] or undefined, one a cluster
  at::Tensor cluster_weight;            // [clusters - 1, width of the first]; undefined for one
  at::Tensor cluster_bias;              // [clusters - 1]
};

// Losses of up to so many rows, without gradients, are computed in pieces of columns on the CPU,
// unless the caller computes a piece (machine/pieces.h). More rows are for the caller to divide.
constexpr std::int64_t kFewSoftmaxRows = 512;

// Returns -log p(target) [rows] for states [rows, d_model] and targets [rows] int64, in the rows'
// order. With the head's logits z and, for a target in cluster i > 0, the logits y of its tail:
//
//   p(target) = softmax(z)[target]                         target in the first cluster
//   p(target) = softmax(z)[cluster i] softmax(y)[target]   target in cluster i
//
// The gradients are made for a factor that is the same for every row, as for a sum or a mean. With
// other factors they are exact too, but cost a second pass. So does a second backward pass. Weights
// of a cluster that no target lies in get zeros, or no gradient if they are tensors of their own.
at::Tensor cross_entropy(const at::Tensor& states, const SoftmaxWeights& weights,
                         const at::Tensor& targets);

// The sum of those losses times `factor`, a scalar. The gradients are made with the factor from
// the start, so that nothing is left to do in the backward pass.
at::Tensor cross_entropy_sum(const at::Tensor& states, const SoftmaxWeights& weights,
                             const at::Tensor& targets, double factor);

// Returns log p(id) [rows, ids] of every id of the vocabulary, on any device and by operations that
// autograd knows. It is for looking at a distribution: slower than the losses, and a caller that
// has many rows gives some at a time, because all of the matrix exists.
at::Tensor log_probabilities(const at::Tensor& states, const SoftmaxWeights& weights);

// Returns logits [rows, ids] whose softmax gives these probabilities: the head's for the first
// cluster, and for an id of another cluster the head's logit of that cluster plus log softmax(y).
at::Tensor logits(const at::Tensor& states, const SoftmaxWeights& weights);

// The plain softmax: weight [vocab_size, d_model], bias [vocab_size].
at::Tensor cross_entropy(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets);

}  // namespace ql::kernels
