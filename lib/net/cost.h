// Counts the parameters, operations and memory of a network, and finds cutoffs that make an
// adaptive softmax cheap.
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::net {

// A vocabulary is divided into clusters for adaptive input and adaptive softmax (Grave et al. 2017;
// Baevski and Auli 2019), in the convention of the public PyTorch Transformer-XL: frequent ids come
// first, and the embeddings of each further cluster are narrower than those of the previous one by
// the factor `div_val`.

struct Cluster {
  std::int64_t begin = 0, end = 0;  // ids [begin, end)
  std::int64_t width = 0;           // elements of an embedding
  bool projected = false;           // a matrix maps embeddings to d_model
  bool tied_projection = false;     // embedding and softmax share this matrix

  std::int64_t size() const { return end - begin; }
};

// Returns the clusters in the order of ids; a network without cutoffs has one cluster. The network
// must have passed check() and must have its vocab_size.
std::vector<Cluster> clusters(const Network& network);

// With div_val 1 all clusters share one embedding table and its projection.
inline bool shares_embedding(const Network& network) { return network.div_val == 1; }

// The next two functions choose the cutoffs of a softmax for the counts of a training's tokens: id
// i occurs counts[i] times. `counts` has vocab_size values, at least one of them positive.

// Estimates the time of the softmax for one token of a training on the CPU, as a number of columns:
// one column is the time of the forward and backward pass for one id of the head. Every token needs
// the head: the first cluster, and a column for each other cluster. A token of another cluster also
// needs that cluster (its tail). All weights are also read once in a step, which is taken to have
// 1,024 tokens. The clusters must have equal widths (div_val 1).
double softmax_columns(const Network& network, const std::vector<std::int64_t>& counts);

// With div_val 1 the cutoffs decide on the time only. Finds, for 0, 1, 2 and 3 cutoffs, the choice
// with the fewest softmax_columns(), and returns the first of these choices that has at most a
// tenth more than the best of them. With 0 cutoffs the softmax is a plain one.
//
// With div_val above 1 the cutoffs decide how many elements the embedding of a word has. Then the
// choice does not look at `counts`: it divides the vocabulary as the public Transformer-XL divides
// the 267,735 words of WikiText-103, at 20,000, 40,000 and 200,000.
std::vector<std::int64_t> propose_cutoffs(const Network& network,
                                          const std::vector<std::int64_t>& counts);

// The cost of attention depends on its kind; kernels/attention.h and nn/layers.cpp compute the
// attention itself.

// Linear attention computes the score of a query and a key only if both are in the same block of
// this many states.
constexpr std::int64_t kLinearBlock = 64;

// Holds the cost of the attention of one layer in one step, for one row of the batch. The
// computation of queries, keys and values is not included.
struct AttentionCost {
  double products = 0;  // multiplications
  // Elements that evaluation by ATen's operations holds at once. The CPU's kernel holds no scores,
  // but they are counted for it, too: another size of chunks would change the last digits.
  double held = 0;
};

// Returns the cost for the layer that reads the states of `input`.
AttentionCost attention_cost(const Network& network, const Stage& input);

// The cost of a network follows from its geometry. qlctx prints the figures of Cost, and the
// benchmarks compute operations per second from them.

struct Cost {
  // This is the number of all weights and biases. The embedding is counted once, because the
  // softmax shares it.
  std::int64_t parameters = 0;
  // Holds the operations of the forward pass per token of a long stream. A multiplication and an
  // addition count as two operations. Only necessary matrix products are counted, each one once:
  // - Queries, keys and values of the segment's states, which include re-computed states at scales
  //   above 1. Keys and values of a memory were counted when its states were in the segment.
  // - Keys and values of states that enter a memory without having had any: compressed states, and
  //   with query_only_pooling the pooled states that the first layer of a coarser scale reads.
  // - Softmax attention of each state to the keys that it sees: content scores, position scores and
  //   weighted values. With query_only_pooling the copies of a query count, too.
  // - Linear attention: keys times values of the window, and queries times sums of these products.
  // - The projection of the heads' results, and the feed-forward layer.
  // - The convolution of a Compressive Transformer, without the decoder that trains it.
  // - Maps of states to the width of the next scale, and learned maps before scales are averaged.
  // - The embedding's projection, and the softmax over the vocabulary with its projection. With
  //   cutoffs only the first cluster counts, because the tokens decide which others are computed.
  // The projected position table is not counted, because it does not depend on the tokens.
  double forward_flops_per_token = 0;
  // Holds the operations of a training step per token of its segments: those of the forward pass,
  // and twice this number for the gradients of weights and inputs. Training recomputes keys and
  // values of complete memories with the changed weights, not only those of the states that enter
  // them. These products count, and also those for the gradients of key and value weights; memories
  // have no gradients. In a Compressive Transformer the convolution and the gradient of its weights
  // count. Other operations of the CompressionLoss do not count.
  double training_flops_per_token = 0;
  // This is the number of states that a stream keeps between steps. They are inputs of layers,
  // compressed memories, and outputs of scales. Only those outputs are kept that are read by the
  // compression to the next scale or by the average of the scales.
  std::int64_t memory_states = 0;
  std::int64_t memory_numbers = 0;  // number of elements of these states
};

// Returns the cost. If vocab_size is 0, the cost leaves out embedding and softmax. If d_model,
// n_head, d_head and d_inner are 0, too, only memory_states is set. Throws ConfigError as
// make_geometry does.
Cost cost(const Network& network, const Lengths& lengths);

}  // namespace ql::net
