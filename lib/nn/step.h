// Runs a step of a network: the tokens of every row, usually a segment, go through all stages
// (net/geometry.h) in turn.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "net/geometry.h"
#include "nn/layers.h"
#include "nn/memory_documents.h"
#include "nn/model_at_lengths.h"

namespace ql::nn {

// Holds all that a step reads besides its tokens and memories. The arguments of the constructor
// must outlive the object.
class StepContext {
 public:
  StepContext(const Model& model, const LengthTables& tables, const StepOptions& options);
  StepContext(StepContext&&) = delete;

  const Model& model() const { return model_; }
  const net::Geometry& geometry() const { return tables_.geometry; }
  const StepOptions& options() const { return options_; }

  // Returns the context of the layer that reads the stage `input`, with the step's own options or
  // with `options`.
  LayerContext layer(const net::Stage& input) const { return layer(input, options_); }
  LayerContext layer(const net::Stage& input, const StepOptions& options) const;
  // widen() maps states from the width of the previous scale to the width of `scale`. narrow() maps
  // states of `scale` to d_model.
  at::Tensor widen(const at::Tensor& states, std::size_t scale) const;
  at::Tensor narrow(const at::Tensor& states, std::size_t scale) const;

 private:
  const Model& model_;
  const LengthTables& tables_;
  const StepOptions& options_;
  std::map<std::int64_t, at::Tensor> positions_;  // by width
};

// The rows of a batch are independent streams (StreamStep), consecutive segments of one stream
// (LayerwiseStep), or streams whose segment is not complete (decode_tokens() in nn/decode.h). Each
// kind of step finds the memory of a row in its own way. run_step() asks it.
class StepKind {
 public:
  // `step` must outlive the object.
  explicit StepKind(const StepContext& step) : step_(step) {}
  virtual ~StepKind() = default;
  StepKind(StepKind&&) = delete;

  // Returns the output of the layer that reads the stage `input`, and replaces the memory of
  // `input` by the memory for the next step. If input.keys_per_state > 1, the segment's keys come
  // from the states before compression, `finer` [batch, segment_keys(), width]. Otherwise the
  // segment's keys come from `states`, and `finer` is undefined.
  virtual at::Tensor layer(const LayerContext& context, const net::Stage& input,
                           const at::Tensor& states, const at::Tensor& finer) = 0;
  // Returns the window of a scale's output, whose segment is `states`: concat(memory, states). Also
  // replaces the memory by the memory for the next step, which has the newest states of
  // concat(memory, states[:output.new_states]).
  virtual at::Tensor window_of(const net::Stage& output, const at::Tensor& states) = 0;
  // Returns those states [batch, c n, width] of the finer scale's `window` that are pooled into the
  // next n states of `stage`: unless overridden, into the complete segment.
  virtual at::Tensor new_groups(const net::Stage& stage, const at::Tensor& window);
  // Returns [batch, tokens, d_model]: for each token p of the segment, the newest state that covers
  // no token after p. `states` are the output of a scale, which `output` describes: unless
  // overridden, a complete segment. `window` is the result of window_of() for `states`.
  virtual at::Tensor states_of_tokens(const net::Stage& output, const at::Tensor& states,
                                      const at::Tensor& window);

 protected:
  const StepContext& step_;
};

// Takes the embedded tokens [batch, tokens, d_model] and returns the last stage's states, of the
// same shape.
at::Tensor run_step(const StepContext& step, StepKind& kind, at::Tensor states);

// The rows are independent streams. If memories are reset at documents, the caller has called
// forget_other_documents(), so the memories hold only states of the current documents.
class StreamStep final : public StepKind {
 public:
  // The step replaces `memory` by the memory of the next step, stage by stage.
  StreamStep(const StepContext& step, Memory& memory) : StepKind(step), memory_(memory) {}

  at::Tensor layer(const LayerContext& context, const net::Stage& input, const at::Tensor& states,
                   const at::Tensor& finer) override;
  // Here `stage` may also be the input of a layer. Its window begins with the compressed memory,
  // which does not change.
  at::Tensor window_of(const net::Stage& stage, const at::Tensor& states) override;
  // After the step, returns the loss by which layers learn to compress, averaged over the layers.
  // It is undefined if no layer learns.
  at::Tensor reconstruction() const;

 private:
  Memory& memory_;
  at::Tensor reconstruction_;  // summed over the layers so far
};

// The rows are consecutive segments of one stream. A layer does not depend on the layers after it,
// so all rows go through one layer before the next layer begins. The memory of a row has states of
// the rows before it. This kind of step has no gradient and no dropout.
class LayerwiseStep final : public StepKind {
 public:
  // The step replaces `memory` by the memory after the last row, stage by stage.
  LayerwiseStep(const StepContext& step, Memory& memory) : StepKind(step), memory_(memory) {}

  at::Tensor layer(const LayerContext& context, const net::Stage& input, const at::Tensor& states,
                   const at::Tensor& finer) override;
  at::Tensor window_of(const net::Stage& output, const at::Tensor& states) override;

 private:
  at::Tensor layer_row_by_row(const net::Stage& input, const at::Tensor& states);
  StageMemory& memory_of(const net::Stage& stage) const;
  at::Tensor windows(const net::Stage& stage, const at::Tensor& states) const;
  // Returns work(tensors) for `tensors` [segments, ...], in `results` if that is defined. A segment
  // of the result depends only on the same segment of all tensors, so the segments are computed in
  // pieces (machine/threads.h).
  at::Tensor in_pieces(const net::Stage& input, const std::vector<at::Tensor>& tensors,
                       const std::function<at::Tensor(const std::vector<at::Tensor>&)>& work,
                       at::Tensor results = {}) const;

  Memory& memory_;
};

}  // namespace ql::nn
