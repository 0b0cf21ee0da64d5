// Resets memories at documents (share/doc/design.md, "Documents"): states that do not belong to the
// document of the segment's first token become zeros. For every row, StepOptions::ages has the
// number of tokens of that document before the segment.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "net/geometry.h"
#include "nn/dropout.h"
#include "nn/memory.h"

namespace ql::nn {

// Says which tokens the states of a memory cover, before the step whose segment begins at token T.
struct MemoryCover {
  std::int64_t granularity = 1;  // tokens of a state
  std::int64_t behind = 0;       // tokens between the end of the newest state and T
  std::int64_t shift = 0;        // states that enter in a step, which is shift * granularity tokens
  std::int64_t together = 1;     // groups of so many states cover their tokens together
};

// The cover of a stage's memory. It ends where the stage's own segment begins: before T when old
// states are computed again.
MemoryCover memory_cover(const net::Stage& stage);
// The cover of a Compressive Transformer's compressed memories.
MemoryCover compressed_memory_cover(const net::Geometry& geometry);

// Counts the newest states that belong to the document that began `ages` [rows] int64 tokens before
// T. A state belongs to it when it covers one of its tokens, or when it was computed by a step that
// began inside it. The count may exceed what the memory holds; it is 0 when T begins the document.
at::Tensor document_states(const MemoryCover& cover, const at::Tensor& ages);

// True [rows, length] for the states of a memory that are to be zeros. The result is undefined
// without ages and where no state is to be zeros, which is usual far from the start of a document.
// Ages on a device are not looked at, so there it is always defined.
at::Tensor forgotten_states(const MemoryCover& cover, std::int64_t length, const StepOptions& step,
                            const at::Device& device);

// Returns `states` [rows, length, ...] with the `forgotten` ones replaced by `zero`, which
// broadcasts, or by zeros if that is undefined. An undefined `forgotten` leaves them as they are.
at::Tensor replace_forgotten(const at::Tensor& states, const at::Tensor& forgotten,
                             const at::Tensor& zero = {});

// Turns the memory of one stage, or of all, into the one that the step begins with.
void forget_other_documents(StageMemory& memory, const net::Stage& stage,
                            const net::Geometry& geometry, const StepOptions& step);
void forget_other_documents(Memory& memory, const net::Geometry& geometry, const StepOptions& step);

}  // namespace ql::nn
