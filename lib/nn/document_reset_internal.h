// Memory that is reset at documents (share/doc/design.md, "Documents"): states that do not belong
// to the document of the segment's first token become zeros. StepOptions::ages has for every row
// how many tokens of that document stand before the segment.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "net/geometry.h"
#include "nn/dropout.h"
#include "nn/memory.h"

namespace ql::nn {

// Which tokens the states of a memory cover, before the step whose segment begins at token T.
struct MemoryCover {
  std::int64_t granularity = 1;  // tokens of a state
  std::int64_t behind = 0;       // tokens between the end of the newest state and T
  std::int64_t shift = 0;        // states that enter in a step, which is shift * granularity tokens
  std::int64_t together = 1;     // so many states cover the tokens of all of them
};

// The cover of a stage's memory. It ends where the stage's own segment begins: before T when old
// states are computed again.
MemoryCover memory_cover(const net::Stage& stage);
// The cover of a Compressive Transformer's compressed memories.
MemoryCover compressed_memory_cover(const net::Geometry& geometry);

// How many of the newest states belong to the document that began `ages` [rows] int64 tokens before
// T: those that cover a token of it, and those that a step computed that began inside it. May be
// more than the memory holds; none when T begins the document.
at::Tensor document_states(const MemoryCover& cover, const at::Tensor& ages);

// True [rows, length] for the states of a memory that are to be zeros. Undefined when there are
// none, which is the rule far from the start of a document, and without ages. Ages on a device are
// not looked at: then it is defined.
at::Tensor forgotten_states(const MemoryCover& cover, std::int64_t length, const StepOptions& step,
                            const at::Device& device);

// `states` [rows, length, ...], those that are `forgotten` replaced by `zero`, which broadcasts;
// undefined: by zeros. As they are where `forgotten` is undefined.
at::Tensor replace_forgotten(const at::Tensor& states, const at::Tensor& forgotten,
                             const at::Tensor& zero = {});

// Makes a memory what a step begins with: of one stage, or of all.
void forget_other_documents(StageMemory& memory, const net::Stage& stage,
                            const net::Geometry& geometry, const StepOptions& step);
void forget_other_documents(Memory& memory, const net::Geometry& geometry, const StepOptions& step);

}  // namespace ql::nn
