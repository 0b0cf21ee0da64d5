// Declares the options of a step: what a caller chooses for one pass of a batch through a network.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::nn {

class AttentionMap;

// Holds a range of places [first, end) in a row's segment; a place is the index of a token.
struct Places {
  std::int64_t first = 0, end = 0;
};

// Holds the options of a step. Training needs seed and step: the random bits of dropout, attention
// dropout and droppath are derived from them, so no random state has to be saved.
struct StepOptions {
  bool training = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  // If true, gradients also flow through memories. This serves to measure context, never to train.
  bool through_memory = false;
  // For every row, this is the number of tokens before the segment that belong to the document of
  // the segment's first token. A network with reset_memory_at_documents needs these numbers (or
  // document_offset_tensor); for other networks there must be none (nn/memory_documents.h).
  std::vector<std::int64_t> document_offsets = {};
  // If this step computes a micro-batch, its rows begin at this row of the complete batch. On the
  // CPU, a micro-batch gets its part of the batch's masks, so that dividing the batch does not
  // change the result.
  std::int64_t first_row = 0;
  // These tensors are on the model's device, for a step that must not wait for the host
  // (train/training_step.h). They hold what the host has chosen for this step. If they are
  // undefined, the step reads document_offsets and computes droppath's choice itself.
  at::Tensor document_offset_tensor = {};  // [rows] int64: document_offsets as a tensor
  at::Tensor scale_weights = {};           // [scales]: the factors of average_scales()
  // If given, every layer adds to this map the attention of those queries whose places are in
  // `shown`, which has one range for each row.
  AttentionMap* attention_map = nullptr;
  std::vector<Places> shown = {};
};

}  // namespace ql::nn
