// Finds the states of a memory that belong to the document that is being read. A network with
// reset_memory_at_documents keeps these and replaces the others by zeros
// (share/doc/design.md, "Documents").
#pragma once

#include <cstdint>

#include "net/geometry.h"

namespace ql::net {

// The states of a memory cover these tokens, before the step whose segment begins at token T.
struct MemoryCover {
  std::int64_t granularity = 1;  // tokens of a state
  std::int64_t behind = 0;       // tokens between the end of the newest state and T
  std::int64_t shift = 0;        // states that enter in a step, which is shift * granularity tokens
  std::int64_t together = 1;     // so many states cover the tokens of all of them
};

// Returns the cover of a stage's memory. It ends where the stage's own segment begins: before T
// when old states are computed again.
MemoryCover memory_cover(const Stage& stage);
// Returns the cover of a Compressive Transformer's compressed memories.
MemoryCover compressed_memory_cover(const Geometry& geometry);

// Returns how many of the newest states belong to the document that began `age` tokens before T.
// They cover a token of it, or a step that began inside it computed them. They may be more than the
// memory holds; there are none when T begins the document.
std::int64_t document_states(const MemoryCover& cover, std::int64_t age);

}  // namespace ql::net
