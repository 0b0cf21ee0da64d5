// Resets memories at documents (share/doc/design.md, "Documents"): states that do not belong to the
// document of the segment's first token become zeros. For every row, StepOptions::document_offsets
// has the number of tokens of that document before the segment.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "net/geometry.h"
#include "nn/memory.h"
#include "nn/step_options.h"

namespace ql::nn {

// Describes the tokens that the states of a memory cover, before a step.
struct MemoryCover {
  std::int64_t stride = 1;      // tokens per state
  std::int64_t gap = 0;         // tokens between the newest state and the step's first token
  std::int64_t new_states = 0;  // states that enter in a step of new_states * stride tokens
  // Groups of `together` neighbouring states cover their tokens together: each state of a group
  // covers the same together * stride tokens.
  std::int64_t together = 1;
};

// Describes which tokens the memory of a stage (a layer's input or a scale's output) covers. The
// memory ends where the stage's segment begins: before the step's first token if the stage computes
// old states again.
MemoryCover memory_cover(const net::Stage& stage);
// Describes which tokens the compressed memories of a Compressive Transformer cover.
MemoryCover compressed_memory_cover(const net::Geometry& geometry);

// Returns for each row how many of the memory's newest states belong to the current document. The
// result and `document_offsets` are [rows] int64. The document begins document_offsets tokens
// before the step's first token. A state belongs to the document if it covers one of the document's
// tokens, or if it entered the memory in a step that began inside the document. The count may
// exceed the length of the memory.
at::Tensor document_states(const MemoryCover& cover, const at::Tensor& document_offsets);

// Returns a mask [rows, length] that is true for the states of a memory that must become zeros. The
// mask is undefined if there are no document offsets. If step.document_offsets has them, the mask
// is undefined when no state must become zeros. If step.document_offset_tensor has them, the mask
// is always defined, because the host does not read that tensor.
at::Tensor forgotten_states(const MemoryCover& cover, std::int64_t length, const StepOptions& step,
                            const at::Device& device);

// Returns `states` [rows, length, ...] in which `zero` replaces the states that the mask
// `forgotten` selects. `zero` broadcasts; if it is undefined, zeros are used. If `forgotten` is
// undefined, nothing is replaced.
at::Tensor replace_forgotten(const at::Tensor& states, const at::Tensor& forgotten,
                             const at::Tensor& zero = {});

// Before a step, sets the states of earlier documents to zeros in the memory of one stage, or of
// all stages.
void forget_other_documents(StageMemory& memory, const net::Stage& stage,
                            const net::Geometry& geometry, const StepOptions& step);
void forget_other_documents(Memory& memory, const net::Geometry& geometry, const StepOptions& step);

}  // namespace ql::nn
