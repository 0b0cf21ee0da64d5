// Counts what a network costs, from its geometry. qlctx prints the figures, and the benchmarks
// divide by them.
#pragma once

#include <cstdint>

#include "net/geometry.h"

namespace ql::net {

struct Cost {
  // Every weight and bias; the embedding is counted once, because the softmax shares it.
  std::int64_t parameters = 0;
  // The forward pass, per token of a long stream. Multiply and add count as two; only matrix
  // products are counted, each that is needed once:
  //   queries, keys and values of the segment's states (a memory's keys and values were computed
  //   when its states were the segment's), at scales above 1 those of re-computed states again;
  //   attention of each state to the memories and to the states up to itself that it sees: content
  //   scores, position scores, weighted values; linear attention: keys times values of the window,
  //   queries times their sum;
  //   the projection of the heads, the feed-forward layer, a compressive network's convolution,
  //   but not the decoder that teaches it;
  //   the softmax over the vocabulary, of an adaptive softmax the head: which of its tails are
  //   computed depends on the targets.
  // Left out: the projected position table, which does not depend on the tokens.
  double forward_flops_per_token = 0;
  // A training step, per token of its segments: the forward pass, where the weights' change
  // makes the keys and values of memories anew, and twice that for the gradients of weights and
  // inputs, but for the inputs that memories are: they have none. Of the loss that teaches a
  // compressive network, the convolution and its gradient are counted, attention or decoder not.
  double training_flops_per_token = 0;
  // States that a stream keeps between steps: the inputs of all layers, the
  // outputs of scales that compression or accumulation reads, and compressed memories.
  std::int64_t memory_states = 0;
  std::int64_t memory_numbers = 0;  // the same in numbers
};

// vocab_size 0 leaves embedding and softmax out; sizes that are all 0 leave memory_states only.
// Throws ConfigError as make_geometry does.
Cost cost(const Network& network, const Lengths& lengths);

}  // namespace ql::net
