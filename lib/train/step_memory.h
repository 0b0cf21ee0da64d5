// Counts the bytes of the tensors that a training step on the CPU holds, as lib/nn and lib/kernels
// make them.
#pragma once

#include <cstdint>

#include "machine/precision.h"
#include "net/geometry.h"

namespace ql::train {

// The bytes of one pass: the forward and the backward pass of some rows.
struct PassMemory {
  // A node of ours keeps what is in its `saved_data` until the graph goes, after the backward pass.
  std::int64_t kept = 0;
  // Other nodes release their tensors when the backward pass has been there.
  std::int64_t released = 0;
  // The end of the forward pass needs this besides: the softmax, or the scales before their
  // average.
  std::int64_t ending = 0;
  // A layer's backward pass, or the forward pass of one that looks at its attention, needs this
  // besides; the layer that needs most counts.
  std::int64_t passing = 0;
};

// `threads`: those that compute the pass together.
PassMemory pass_memory(const net::Network& network, const net::Geometry& geometry,
                       std::int64_t rows, machine::Precision precision, int threads);

// Returns the bytes that the memories of a row take after a step.
std::int64_t memory_bytes(const net::Geometry& geometry);

struct VocabularyMemory {
  std::int64_t gradients = 0;  // those that the softmax makes in the forward pass
  std::int64_t table = 0;      // the largest table of embeddings among them
};
VocabularyMemory vocabulary_memory(const net::Network& network);

}  // namespace ql::train
