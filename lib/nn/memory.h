// The recurrent memory: the states just before the next segment (paper, section 2.3). Every layer's
// input has one, and every scale's output that compression or accumulation reads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "net/geometry.h"
#include "nn/named_tensor.h"

namespace ql::nn {

// The memory of one stage.
struct StageMemory {
  at::Tensor states;      // [batch, n_m(i), d_model]; undefined where the stage keeps none
  at::Tensor compressed;  // [batch, n_cm, d_model]; undefined where the stage keeps none
};

// The memory that a step leaves for the next one, without gradient unless
// StepOptions::through_memory is set. It starts as zeros.
struct Memory {
  std::vector<StageMemory> stages;  // one for every stage of the geometry

  // The tensors that are kept, in order: "memory.0", "memory.1", ..., each followed by its
  // "compressed_memory.N" where there is one. They share their storage with this memory.
  std::vector<NamedTensor> named() const;
  // Returns the same stages with `change` applied to every tensor that is kept.
  Memory with(const std::function<at::Tensor(const at::Tensor&)>& change) const;
};

// Zeros [batch, ...] in the dtype and on the device of `options`.
Memory zero_memory(const net::Geometry& geometry, std::int64_t batch,
                   const at::TensorOptions& options);

// Throws ConfigError unless `memory` has the tensors and shapes of these numbers.
void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch);

}  // namespace ql::nn
