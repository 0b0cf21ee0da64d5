// Computes the softmax cross entropy over the vocabulary, which may be divided into clusters
// (adaptive softmax, Grave et al. 2017).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::kernels {

// On the CPU, cross_entropy() keeps only parts of the [rows, ids] matrices of logits and
// probabilities, in a buffer for a block of rows (kernels/softmax_blocks.h). If gradients are
// wanted, the forward pass computes them together with the losses, and hands them to the backward
// pass. On other devices, autograd keeps the complete logits.

// Holds the weights of the softmax, or their gradients. The head has one logit for each id of the
// first cluster, and one for each other cluster. Each other cluster has a tail with one logit for
// each of its ids. With one cluster this is the plain softmax.
struct SoftmaxWeights {
  std::vector<std::int64_t> ends;       // for each cluster, one more than its last id
  std::vector<at::Tensor> weights;      // [ids, width]: one per cluster, or one for all ids
  std::vector<at::Tensor> biases;       // [ids], one for each of `weights`
  std::vector<at::Tensor> projections;  // [d_model, width] or undefined, one per cluster
  at::Tensor cluster_weight;            // [clusters - 1, head's width]; undefined for one cluster
  at::Tensor cluster_bias;              // [clusters - 1]
};

// On the CPU, threads divide the columns of the softmax for at most this many rows. They do not if
// gradients are wanted, or inside a piece of work (machine/threads.h). A caller with more rows
// should divide the rows into pieces of work.
constexpr std::int64_t kFewSoftmaxRows = 512;

// Returns -log p(target) [rows] for states [rows, d_model] and targets [rows] int64, in the rows'
// order. With the head's logits z and, for a target in cluster i > 0, the logits y of its tail:
//
//   p(target) = softmax(z)[target]                         target in the first cluster
//   p(target) = softmax(z)[cluster i] softmax(y)[target]   target in cluster i
//
// The forward pass computes the gradients of the sum of the losses. The backward pass scales them
// if all rows get the same incoming gradient, as from a sum or a mean of the losses. With different
// incoming gradients, and in a second backward pass, it computes the logits again. For a tail
// without targets, the gradients of weights and biases are zero, or undefined if the tail has
// tensors of its own.
at::Tensor cross_entropy(const at::Tensor& states, const SoftmaxWeights& weights,
                         const at::Tensor& targets);

// Returns, as a scalar tensor, `factor` times the sum of the losses of cross_entropy(). The forward
// pass computes the gradients with this factor. The first backward pass multiplies them by the
// incoming gradient, unless this is 1.
at::Tensor cross_entropy_sum(const at::Tensor& states, const SoftmaxWeights& weights,
                             const at::Tensor& targets, double factor);

// Returns log p(id) [rows, ids] of every id of the vocabulary, on any device and by operations that
// autograd knows. This function serves to inspect a distribution. It is slower than
// cross_entropy(), and holds the complete matrix, so a caller with many rows should pass some of
// the rows at a time.
at::Tensor log_probabilities(const at::Tensor& states, const SoftmaxWeights& weights);

// Returns logits [rows, ids] whose softmax is p(id). An id of the first cluster has its logit in
// the head. An id of another cluster has the head's logit of that cluster plus log softmax(y)[id],
// with the tail's logits y.
at::Tensor logits(const at::Tensor& states, const SoftmaxWeights& weights);

// Holds the rows of a batch, grouped by the cluster of the vocabulary that a row's id belongs to
// (net/cost.h). Inside a cluster, the rows are in ascending order.
struct ClusterRows {
  at::Tensor rows;                   // [rows] int64
  at::Tensor ids;                    // [rows] int64, counted from the first id of the cluster
  at::Tensor places;                 // [rows] int64: rows[places[i]] is i
  std::vector<std::int64_t> begins;  // index of each cluster's first row in `rows`, then the end

  std::int64_t count(std::size_t cluster) const { return begins[cluster + 1] - begins[cluster]; }
  at::Tensor rows_of(std::size_t cluster) const {
    return rows.narrow(0, begins[cluster], count(cluster));
  }
  at::Tensor ids_of(std::size_t cluster) const {
    return ids.narrow(0, begins[cluster], count(cluster));
  }
};

// Groups rows by their `ids` [rows] int64, which must be below ends.back(); `ends` ascends and has
// the end of every cluster's ids. The tensors are made on the CPU and copied to the device of
// `ids`, so that the host waits for this device once, and not once per cluster.
ClusterRows rows_by_cluster(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

// Returns the targets of the head. An id of the first cluster is its own target. The target of an
// id of cluster i > 0 is column head_size - i, where the head has head_size columns. So the columns
// of the other clusters follow the ids of the first cluster in reverse order. The public
// Transformer-XL code has this order, too: it reads column -i.
at::Tensor head_targets(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

// Returns the losses of cross_entropy() on any device, by operations that autograd knows.
at::Tensor composed_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                           const at::Tensor& targets);

}  // namespace ql::kernels
