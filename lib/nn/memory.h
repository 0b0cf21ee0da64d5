// Holds the memories of stages (net/geometry.h) between steps.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "net/geometry.h"
#include "nn/parameters.h"

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

}  // namespace ql::nn
