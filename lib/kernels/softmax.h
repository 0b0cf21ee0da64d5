// Computes the softmax cross entropy over the vocabulary, which may be divided into clusters
// (adaptive softmax, Grave et al. 2017).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::kernels {

// On the CPU the [rows, ids] matrices exist only in parts, in a buffer for a block of rows
// (softmax_blocks(), below). If a gradient is wanted, all gradients are computed in the same pass
// as the losses, and the forward pass hands the gradients of states, weights, biases and
// projections to the backward pass. Other devices keep the logits.

// The head decides between the ids of the first cluster and the other clusters; a tail decides
// within its cluster. With one cluster this is the plain softmax. Gradients have the same shapes.
struct SoftmaxWeights {
  std::vector<std::int64_t> ends;       // of every cluster: one more than its last id
  std::vector<at::Tensor> weights;      // [ids, width]: one a cluster, or one for all ids
  std::vector<at::Tensor> biases;       // [ids], one for each of `weights`
  std::vector<at::Tensor> projections;  // [d_model, width] or undefined, one a cluster
  at::Tensor cluster_weight;            // [clusters - 1, width of the first]; undefined for one
  at::Tensor cluster_bias;              // [clusters - 1]
};

// On the CPU, losses of up to this many rows are computed without gradients in pieces of columns,
// unless the caller itself computes a piece (machine/threads.h). With more rows the caller has to
// divide the rows.
constexpr std::int64_t kFewSoftmaxRows = 512;

// Returns -log p(target) [rows] for states [rows, d_model] and targets [rows] int64, in the rows'
// order. With the head's logits z and, for a target in cluster i > 0, the logits y of its tail:
//
//   p(target) = softmax(z)[target]                         target in the first cluster
//   p(target) = softmax(z)[cluster i] softmax(y)[target]   target in cluster i
//
// The gradients are computed for one factor for all rows, as for a sum or a mean. Other factors
// give exact gradients too, but cost a second pass; so does a second backward pass. A cluster
// without targets gets zeros as the gradient of its weights, or no gradient if its weights are
// tensors of their own.
at::Tensor cross_entropy(const at::Tensor& states, const SoftmaxWeights& weights,
                         const at::Tensor& targets);

// Returns the sum of those losses times `factor`, a scalar. The gradients are computed with the
// factor at once, so that the backward pass has nothing to compute.
at::Tensor cross_entropy_sum(const at::Tensor& states, const SoftmaxWeights& weights,
                             const at::Tensor& targets, double factor);

// Returns log p(id) [rows, ids] of every id of the vocabulary, on any device and by operations that
// autograd knows. It serves to inspect a distribution: it is slower than the losses, and because
// the complete matrix exists, a caller with many rows passes some of them at a time.
at::Tensor log_probabilities(const at::Tensor& states, const SoftmaxWeights& weights);

// Returns logits [rows, ids] whose softmax gives these probabilities: the head's for the first
// cluster, and for an id of another cluster the head's logit of that cluster plus log softmax(y).
at::Tensor logits(const at::Tensor& states, const SoftmaxWeights& weights);

// Groups the rows of a batch by the cluster of the vocabulary that they belong to (net/cost.h).

// Holds all rows, grouped by the cluster of their id, in ascending order inside a cluster.
struct ClusterRows {
  at::Tensor rows;                   // [rows] int64
  at::Tensor ids;                    // [rows] int64, counted from the first id of the cluster
  at::Tensor places;                 // [rows] int64: the index in `rows` at which row i is
  std::vector<std::int64_t> begins;  // of each cluster in `rows`, then its end

  std::int64_t count(std::size_t cluster) const { return begins[cluster + 1] - begins[cluster]; }
  at::Tensor rows_of(std::size_t cluster) const {
    return rows.narrow(0, begins[cluster], count(cluster));
  }
  at::Tensor ids_of(std::size_t cluster) const {
    return ids.narrow(0, begins[cluster], count(cluster));
  }
};

// `ids` [rows] int64 must be below ends.back(); `ends` ascends and has the end of every cluster's
// ids. The tensors are made on the CPU and copied to the device of `ids`, so that another device is
// waited for once and not for every cluster.
ClusterRows rows_by_cluster(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

// Returns the targets of the head. An id of the first cluster is its own target. For cluster i > 0
// the target is column head_size - i: the clusters' columns follow the ids of the first cluster in
// reverse order, as in the public code, which reads column -i.
at::Tensor head_targets(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

// Returns the losses of cross_entropy() on any device, by operations that autograd knows.
at::Tensor composed_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                           const at::Tensor& targets);

// The rest of this file is for softmax_blocks(), which computes cross entropy and its gradients by
// blocks of rows and panels of columns, on the CPU and outside of autograd.

// A block of rows reads all weights and adds to all their gradients, so it should have many rows.
// Its exponentials are kept until their sums are known. In float32 this is just below the size that
// the C library keeps for the next step (keep_freed_memory() in machine/threads.h).
constexpr std::int64_t kBlockElements = std::int64_t{7} << 20;
constexpr std::int64_t kSmallestBlock = 128;
// A panel of columns is exponentiated and multiplied while it is in a cache, and one of its rows
// fits into the first-level cache.
constexpr std::int64_t kPanelColumns = 2048;

// All tensors are contiguous and, except for the targets, of one dtype, float32 or float64.
struct SoftmaxRows {
  at::Tensor states;          // [rows, width]
  at::Tensor targets;         // [rows] int64: columns
  at::Tensor factors;         // [rows]; undefined: no gradients are made
  at::Tensor state_gradient;  // [rows, width], written; undefined: not wanted
};

// Describes some columns of the softmax. The columns of several sets follow one another in the
// sets' order.
struct SoftmaxColumns {
  at::Tensor weight;                          // [columns, width]
  at::Tensor bias;                            // [columns]
  at::Tensor weight_gradient, bias_gradient;  // of these shapes, written; undefined: not wanted
};

// Returns the losses [rows]. With factors it also writes the gradients of sum(factors * losses);
// then there must be at least one row. Gradients take a buffer of at most 7 * 2^20 elements, or of
// 128 rows if that is more.
at::Tensor softmax_blocks(const SoftmaxRows& rows, const std::vector<SoftmaxColumns>& columns);

}  // namespace ql::kernels
