// Runs a network (nn/model.h) at some segment and memory lengths: the embedding and all layers
// before the softmax.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model].
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <vector>

#include "net/geometry.h"
#include "nn/memory.h"
#include "nn/model.h"
#include "nn/step_options.h"

namespace ql::nn {

class DecodeState;

// Holds everything that a step needs and that depends only on the network and the lengths.
struct LengthTables {
  net::Geometry geometry;
  // position_table() of the longest window, for every width of states.
  std::map<std::int64_t, at::Tensor> positions;
  // This is kernels::attention_mask() for each stage. A mask is undefined for a stage that feeds no
  // layer. All masks are undefined for linear attention and for our own kernels, which need no
  // mask.
  std::vector<at::Tensor> attention_mask;
};

class ModelAtLengths {
 public:
  // `model` must outlive this object; the model's weights may change. Throws ConfigError if the
  // lengths do not fit the network.
  ModelAtLengths(const Model& model, const net::Lengths& lengths);
  // Shares the tables of `other`, whose model has the same network.
  ModelAtLengths(const Model& model, const ModelAtLengths& other)
      : model_(model), tables_(other.tables_) {}

  const Model& model() const { return model_; }
  const net::Geometry& geometry() const { return tables_.geometry; }

  Memory start_memory(std::int64_t batch) const;

  // Returns the states [batch, segment, d_model] of the last stage for tokens [batch, segment], and
  // replaces `memory` by the memory of the next step. Throws ConfigError if tokens, memory and
  // `step.document_offsets` do not fit together, and FormatError for a token that is not in the
  // vocabulary (which is checked only for tokens on the CPU).
  //
  // `reconstruction`, if given, is set to the auxiliary loss by which a compressive network learns
  // its convolution and decoder (nn/compression.h). The caller adds this scalar to the loss with a
  // small weight (the paper: 0.01). It is undefined outside training, and if there is nothing to
  // learn.
  at::Tensor forward(const at::Tensor& tokens, Memory& memory, const StepOptions& step,
                     at::Tensor* reconstruction = nullptr) const;

  // Computes forward() for `embedded`, the result of Model::embed() for a segment's tokens. A
  // caller that holds the embeddings can request the gradient with respect to them.
  at::Tensor forward_embedded(const at::Tensor& embedded, Memory& memory, const StepOptions& step,
                              at::Tensor* reconstruction = nullptr) const;

  // Computes forward() without dropout and gradient for consecutive segments of one stream: tokens
  // [segments, segment] go through the first layer, then through the second, and so on. `memory`
  // has batch 1; `document_offsets` are as in StepOptions, one for each segment. If they are given,
  // the memory is reset even for a network that does not reset its memory in forward(). The states
  // equal those of forward(), segment by segment. If the network's pool is kMostUsed, a layer still
  // computes its segments one by one, because the states that the layer keeps from a segment depend
  // on the previous segment. If `map` is given, every layer adds its attention to `map`. `shown`
  // then has a range of queries for each segment, as in StepOptions.
  at::Tensor forward_stream(const at::Tensor& tokens, Memory& memory,
                            const std::vector<std::int64_t>& document_offsets = {},
                            AttentionMap* map = nullptr,
                            const std::vector<Places>& shown = {}) const;

  // Computes forward() without dropout and gradient for the next tokens [batch, count] of the
  // streams in `decoding`. Inside a segment, nothing is computed again for earlier tokens. Returns
  // states [batch, count, d_model]. On the CPU the bits of a stream's states do not depend on the
  // other streams if `batch_invariant` is true; otherwise large batches are faster. Throws
  // ConfigError for tokens of another shape, or without a token.
  at::Tensor forward_next(const at::Tensor& tokens, DecodeState& decoding,
                          bool batch_invariant = true) const;

 private:
  at::Tensor embed_segments(const at::Tensor& tokens) const;
  // Call this before the first token of a segment. If the network resets its memory at documents,
  // the memory's states of earlier documents become zeros.
  void forget_before(DecodeState& decoding) const;

  const Model& model_;
  LengthTables tables_;
};

}  // namespace ql::nn
