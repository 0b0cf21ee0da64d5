// Runs a model at some segment and memory lengths.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model].
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <vector>

#include "net/geometry.h"
#include "nn/dropout.h"
#include "nn/growing_segment.h"
#include "nn/memory.h"
#include "nn/model.h"

namespace ql::nn {

// Everything that a step needs and only the lengths decide.
struct LengthTables {
  net::Geometry geometry;
  // position_table() of the longest window, for every width of states; [length, 0] where none is
  // read.
  std::map<std::int64_t, at::Tensor> positions;
  // kernels::hidden_keys() by stage; undefined for a stage that feeds no layer. Linear attention
  // and our own kernels need none, so it is undefined for them, too.
  std::vector<at::Tensor> hidden_keys;
};

class ModelAtLengths {
 public:
  // `model` must outlive this object; its weights may change. Throws ConfigError when the lengths
  // do not fit the network.
  ModelAtLengths(const Model& model, const net::Lengths& lengths);

  const Model& model() const { return model_; }
  const net::Geometry& geometry() const { return tables_.geometry; }

  Memory start_memory(std::int64_t batch) const;

  // The last layer's output states [batch, segment, d_model] for tokens [batch, segment]. Replaces
  // `memory` by the next step's. Throws ConfigError when tokens, memory and `step.ages` do not fit
  // together, FormatError for a token that is not in the vocabulary (checked for tokens on the
  // CPU).
  //
  // `reconstruction`, if given, becomes the auxiliary loss by which a compressive network learns
  // its convolution and decoder (nn/compression_internal.h): a scalar to add to the loss with a
  // small weight (the paper: 0.01), or undefined when there is nothing to learn.
  at::Tensor forward(const at::Tensor& tokens, Memory& memory, const StepOptions& step,
                     at::Tensor* reconstruction = nullptr) const;

  // The same from the vectors that Model::embed() makes of a segment's tokens. A caller that holds
  // them can ask for the gradient with respect to a token.
  at::Tensor forward_embedded(const at::Tensor& embedded, Memory& memory, const StepOptions& step,
                              at::Tensor* reconstruction = nullptr) const;

  // forward() without dropout and gradient for consecutive segments of one stream: tokens
  // [segments, segment] go through the first layer, then through the second, and so on. `memory`
  // has batch 1; `ages` are those of StepOptions, one for each segment. A network that does not
  // reset its memory may have them as well, and resets it in this call. The states equal those of
  // forward(), segment by segment. With the pool most-used a layer still takes its segments one by
  // one, because the states that it keeps of a segment depend on the segment before. `map`, if
  // given, gets the attention of every layer at the `shown` places of each segment.
  at::Tensor forward_stream(const at::Tensor& tokens, Memory& memory,
                            const std::vector<std::int64_t>& ages = {}, AttentionMap* map = nullptr,
                            const std::vector<Places>& shown = {}) const;

  // forward() without dropout and gradient for the next tokens [batch, count] of streams, one or
  // any number of them: nothing is computed again for the tokens before. Returns states [batch,
  // count, d_model]. On the CPU those of a stream have the same bits, whatever streams are beside
  // it.
  at::Tensor forward_next(const at::Tensor& tokens, GrowingSegment& growing) const;

 private:
  at::Tensor embed_segments(const at::Tensor& tokens) const;
  // Lets a segment that begins forget the states of other documents.
  void forget_before(GrowingSegment& growing) const;

  const Model& model_;
  LengthTables tables_;
};

}  // namespace ql::nn
