// Holds the memories of stages (net/geometry.h) between steps, and resets them at documents.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "net/geometry.h"
#include "nn/parameters.h"
#include "nn/step_options.h"

namespace ql::nn {

// In a network with memory, the input of every layer has a memory: the states just before those of
// the next segment (paper, section 2.3). The output of a scale has a memory if old states of this
// output are read again, for the next scale or for the average of all scales.

// Holds the memory of one stage.
struct StageMemory {
  at::Tensor states;      // [batch, n_m(i), width]; undefined if the stage keeps none
  at::Tensor compressed;  // [batch, n_cm, width]; undefined if the stage keeps none
};

// Holds the memory from one step to the next, without gradient unless StepOptions::through_memory
// is set. A memory starts as zeros.
struct Memory {
  std::vector<StageMemory> stages;  // one for every stage of the geometry

  // Returns the tensors that are kept, in order: "memory.0", "memory.1", ..., each followed by its
  // "compressed_memory.N" if there is one. They share their storage with this memory.
  std::vector<NamedTensor> named() const;
  // Returns a memory whose tensors are the results of `change` for the tensors of this memory.
  // Undefined tensors stay undefined.
  Memory with(const std::function<at::Tensor(const at::Tensor&)>& change) const;
};

// Returns zeros [batch, ...] in the dtype and on the device of `options`.
Memory zero_memory(const net::Geometry& geometry, std::int64_t batch,
                   const at::TensorOptions& options);

// Throws ConfigError unless `memory` has the tensors and shapes for this geometry and batch.
void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch);

// The rest of this file resets memories at documents (share/doc/design.md, "Documents"): states
// that do not belong to the document of the segment's first token become zeros. For every row,
// StepOptions::document_offsets has the number of tokens of that document before the segment.

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
