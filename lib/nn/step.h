// Runs a step of a network: the tokens of every row, usually a segment, go through all stages
// (net/geometry.h) in turn.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "net/geometry.h"
#include "nn/decode.h"
#include "nn/layers.h"
#include "nn/memory.h"
#include "nn/model.h"

namespace ql::nn {

// The rows of a batch are independent streams (Step itself), consecutive segments of one stream
// (LayerwiseStep), or streams whose segment is not complete (DecodeStep). Each kind of step finds
// the memory of a row in its own way. If memories are reset at documents, the caller of Step itself
// has called forget_other_documents(), so the memories hold only states of the current documents.
class Step {
 public:
  // run() replaces `memory` by the memory of the next step, stage by stage.
  Step(const Model& model, const LengthTables& tables, const StepOptions& options, Memory& memory);
  virtual ~Step() = default;
  Step(Step&&) = delete;

  // Takes the embedded tokens [batch, tokens, d_model] and returns the last stage's states, of the
  // same shape.
  at::Tensor run(at::Tensor states);
  // After run(), returns the loss by which layers learn to compress, averaged over the layers. It
  // is undefined if no layer learns.
  at::Tensor reconstruction() const;

 protected:
  // The other kinds of step override some of these functions. Here the rows are independent
  // streams.

  // Returns the output of the layer that reads the stage `input`, and replaces the memory of
  // `input` by the memory for the next step. If input.keys_per_state > 1, the segment's keys come
  // from the states before compression, `finer` [batch, segment_keys(), width]. Otherwise the
  // segment's keys come from `states`, and `finer` is undefined.
  virtual at::Tensor layer(const LayerContext& context, const net::Stage& input,
                           const at::Tensor& states, const at::Tensor& finer);
  // Returns the window of `stage`, whose segment is `states`: concat(compressed memory, memory,
  // states). Also replaces the stage's memory by the memory for the next step, which has the newest
  // states of concat(memory, states[:stage.new_states]). The compressed memory does not change.
  // An override of this function is called only for the outputs of scales; they have no compressed
  // memory.
  virtual at::Tensor window_of(const net::Stage& stage, const at::Tensor& states);
  // Returns those states [batch, c n, width] of the finer scale's `window` that are pooled into the
  // next n states of `stage`.
  virtual at::Tensor new_groups(const net::Stage& stage, const at::Tensor& window);
  // Returns [batch, tokens, d_model]: for each token p of the segment, the newest state that covers
  // no token after p. `states` are the output of a scale, which `output` describes. `window` is the
  // result of window_of() for `states`.
  virtual at::Tensor states_of_tokens(const net::Stage& output, const at::Tensor& states,
                                      const at::Tensor& window);

  // Returns the memory of `stage`, which must be an element of geometry_.stages.
  StageMemory& memory_of(const net::Stage& stage) const {
    return memory_.stages[static_cast<std::size_t>(&stage - geometry_.stages.data())];
  }
  // Returns the position table of a layer's window.
  at::Tensor positions(const net::Stage& input) const;
  // widen() maps states from the width of the previous scale to the width of `scale`. narrow() maps
  // states of `scale` to d_model.
  at::Tensor widen(const at::Tensor& states, std::size_t scale) const;
  at::Tensor narrow(const at::Tensor& states, std::size_t scale) const;

  const Model& model_;
  const net::Geometry& geometry_;
  const StepOptions& options_;

 private:
  at::Tensor layer_over(std::size_t input, const at::Tensor& states, const at::Tensor& finer);

  const LengthTables& tables_;
  Memory& memory_;
  std::map<std::int64_t, at::Tensor> positions_;  // by width
  at::Tensor reconstruction_;                     // summed over the layers so far
};

// The rows are consecutive segments of one stream. A layer does not depend on the layers after it,
// so all rows go through one layer before the next layer begins. The memory of a row has states of
// the rows before it. This kind of step has no gradient and no dropout.
class LayerwiseStep : public Step {
 public:
  using Step::Step;

 private:
  at::Tensor layer(const LayerContext& context, const net::Stage& input, const at::Tensor& states,
                   const at::Tensor& finer) override;
  at::Tensor window_of(const net::Stage& output, const at::Tensor& states) override;
  at::Tensor layer_row_by_row(const LayerContext& context, const net::Stage& input,
                              const at::Tensor& states);
  at::Tensor window(const net::Stage& stage, const at::Tensor& states) const;
  // Returns work(tensors) for `tensors` [segments, ...], in `results` if that is defined. A segment
  // of the result depends only on the same segment of all tensors, so the segments are computed in
  // pieces (machine/threads.h).
  at::Tensor in_pieces(const net::Stage& input, const std::vector<at::Tensor>& tensors,
                       const std::function<at::Tensor(const std::vector<at::Tensor>&)>& work,
                       at::Tensor results = {}) const;
};

// The rows are streams that get some tokens of the current segment. A stage (net/geometry.h)
// computes the states that these tokens complete, possibly none. At the beginning of a segment, the
// stages of coarser scales may also compute older states again. This kind of step has no gradient
// and no dropout.
class DecodeStep : public Step {
 public:
  // run() takes `tokens` new tokens of every row, and adds their states to `growing`.
  DecodeStep(const Model& model, const LengthTables& tables, const StepOptions& options,
             DecodeState& growing, std::int64_t tokens);

 private:
  at::Tensor layer(const LayerContext& context, const net::Stage& input, const at::Tensor& states,
                   const at::Tensor& finer) override;
  at::Tensor window_of(const net::Stage& output, const at::Tensor& states) override;
  at::Tensor new_groups(const net::Stage& stage, const at::Tensor& window) override;
  at::Tensor states_of_tokens(const net::Stage& output, const at::Tensor& states,
                              const at::Tensor& window) override;
  DecodeStage& growing_of(const net::Stage& stage);
  // Returns the layer's position_scores for the `keys` that the window has so far.
  at::Tensor positions_so_far(const LayerContext& context, const net::Stage& input,
                              std::int64_t keys);
  // Turns the segment of the layer's input into memory.
  void end_segment(const LayerContext& context, const net::Stage& input);

  DecodeState& growing_;
  std::int64_t tokens_;
  Memory unused_;  // only Step's constructor needs it: `growing_` has the memories
};

}  // namespace ql::nn
