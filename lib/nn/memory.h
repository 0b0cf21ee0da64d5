// Holds the memories of stages (net/geometry.h) between steps, and resets them at documents.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "net/geometry.h"
#include "nn/dropout.h"
#include "nn/parameters.h"

namespace ql::nn {

// The recurrent memory has the states just before the next segment (paper, section 2.3). In a
// network with memory, every layer's input has a memory. A scale's output has a memory if
// compression or accumulation reads old states of this output.

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
  // Returns the same stages with `change` applied to every tensor that is kept.
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

// Describes the tokens that the states of a memory cover, before the step whose segment begins at
// token T.
struct MemoryCover {
  std::int64_t stride = 1;      // tokens per state
  std::int64_t gap = 0;         // tokens from the end of the newest state to T
  std::int64_t new_states = 0;  // states that enter in a step of new_states * stride tokens
  std::int64_t together = 1;    // size of groups whose states all cover the group's tokens
};

// Returns the cover of a stage's memory. The memory ends where the stage's own segment begins,
// which is before T if old states are computed again.
MemoryCover memory_cover(const net::Stage& stage);
// Returns the cover of a Compressive Transformer's compressed memories.
MemoryCover compressed_memory_cover(const net::Geometry& geometry);

// Returns [rows] int64: how many of each row's newest states belong to the document that began
// `document_offsets` [rows] int64 tokens before T. A state belongs to the document if it covers one
// of the document's tokens, or if it entered in a step that began inside the document. The count
// may exceed the length of the memory. It is 0 if T is the first token of the document.
at::Tensor document_states(const MemoryCover& cover, const at::Tensor& document_offsets);

// Returns a mask [rows, length] that is true for the states of a memory that must become zeros. The
// mask is undefined if there are no document offsets. It is also undefined if no state must become
// zeros, as usual far from the start of a document. The host does not read offsets that are on a
// device (StepOptions::age_tensor), so for them the mask is always defined.
at::Tensor forgotten_states(const MemoryCover& cover, std::int64_t length, const StepOptions& step,
                            const at::Device& device);

// Returns `states` [rows, length, ...] in which `zero` replaces the states that the mask
// `forgotten` selects. `zero` broadcasts; if it is undefined, zeros are used. If `forgotten` is
// undefined, nothing is replaced.
at::Tensor replace_forgotten(const at::Tensor& states, const at::Tensor& forgotten,
                             const at::Tensor& zero = {});

// Resets the states of other documents in the memory of one stage, or of all stages, before a step.
void forget_other_documents(StageMemory& memory, const net::Stage& stage,
                            const net::Geometry& geometry, const StepOptions& step);
void forget_other_documents(Memory& memory, const net::Geometry& geometry, const StepOptions& step);

}  // namespace ql::nn
