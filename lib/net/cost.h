// Counts the parameters, operations and memory of a network, and finds the cutoffs that cost least.
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::net {

// These divide a vocabulary into clusters for adaptive input and adaptive softmax (Grave et al.
// 2017; Baevski and Auli 2019), in the convention of the public PyTorch Transformer-XL: frequent
// ids come first, and the embeddings of each later cluster are narrower by the factor `div_val`.

struct Cluster {
  std::int64_t begin = 0, end = 0;  // ids
  std::int64_t width = 0;           // elements of an embedding
  bool projected = false;           // a matrix maps embeddings to d_model
  bool tied_projection = false;     // the softmax projects with the embedding's matrix

  std::int64_t size() const { return end - begin; }
};

// Returns one cluster for a network without cutoffs. The network must have passed check() and must
// have its vocab_size.
std::vector<Cluster> clusters(const Network& network);

// With div_val 1 all clusters share one embedding table and its projection.
inline bool shares_embedding(const Network& network) { return network.div_val == 1; }

// These find cutoffs that make an adaptive softmax cheap.

// Returns the multiplications of the softmax and its projections for a token on average, when id i
// occurs counts[i] times: the head for every token, a tail for the tokens of its cluster. `network`
// must have passed check(); `counts` has vocab_size values, at least one of them positive.
double softmax_products(const Network& network, const std::vector<std::int64_t>& counts);

// Returns up to three cutoffs for this network's widths: the fewest cutoffs that come within a
// tenth of the smallest number of products, or none if the plain softmax does.
std::vector<std::int64_t> propose_cutoffs(const Network& network,
                                          const std::vector<std::int64_t>& counts);

// This is the cost of attention by its kind; kernels/attention.h and nn/layers.cpp have the
// attention itself.

// Linear attention compares this many queries pair by pair.
constexpr std::int64_t kLinearBlock = 64;

// Holds the cost of weighing the values of one layer in one step of one row of the batch. Computing
// queries, keys and values does not count.
struct AttentionCost {
  double products = 0;       // multiplications
  double kept_scores = 0;    // elements under dropout that the backward pass reads
  double kept_features = 0;  // further elements that the backward pass reads
  double held = 0;           // elements that evaluation holds at once
};

// Returns the cost for the layer that reads the states of `input`.
AttentionCost attention_cost(const Network& network, const Stage& input);

// The cost of a network follows from its geometry. qlctx prints these figures, and the benchmarks
// divide by them.

struct Cost {
  // This is the number of all weights and biases. The embedding is counted once, because the
  // softmax shares it.
  std::int64_t parameters = 0;
  // Operations of the forward pass, per token of a long stream. Multiply and add count as two. Only
  // matrix products are counted, each necessary one once:
  //   queries, keys and values of the segment's states (those of a memory were computed when its
  //   states were the segment's), at scales above 1 also those of re-computed states;
  //   attention of each state to the memories and to the states up to itself that it sees: content
  //   scores, position scores, weighted values; for linear attention: keys times values of the
  //   window, queries times their sum;
  //   the projection of the heads, the feed-forward layer, and a compressive network's convolution
  //   without the decoder that trains it;
  //   the softmax over the vocabulary; for an adaptive softmax only the head, because the targets
  //   decide which tails are computed.
  // The projected position table is not counted, because it does not depend on the tokens.
  double forward_flops_per_token = 0;
  // Operations of a training step, per token of its segments: the forward pass, in which keys and
  // values of memories are computed again because the weights have changed, and twice that for the
  // gradients of weights and inputs. Memories have no gradients, so the gradients of inputs are not
  // counted there. For the loss that trains a compressive network, the convolution and its gradient
  // are counted, its attention or decoder are not.
  double training_flops_per_token = 0;
  // This is the number of states that a stream keeps between steps: the inputs of all layers, the
  // outputs of scales that compression or accumulation reads, and compressed memories.
  std::int64_t memory_states = 0;
  std::int64_t memory_numbers = 0;  // the same in elements
};

// Returns the cost. With vocab_size 0 it leaves out embedding and softmax; with all sizes 0 it sets
// memory_states only. Throws ConfigError as make_geometry does.
Cost cost(const Network& network, const Lengths& lengths);

}  // namespace ql::net
