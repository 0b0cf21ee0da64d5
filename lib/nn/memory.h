// The recurrent memory: for every layer's input, and every scale's output that compression or
// accumulation reads, the states just before the next segment (paper, section 2.3).
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "net/document_reset.h"
#include "net/geometry.h"
#include "nn/named_tensor.h"

namespace ql::nn {

// What a step leaves for the next one, without gradient (but see StepOptions::through_memory).
// Starts as zeros.
struct Memory {
  // "memory.0", "memory.1", ... [batch, states, d_model] in the order of the stages, each followed
  // by its "compressed_memory.N" where there is one. Stages that keep nothing are left out.
  std::vector<NamedTensor> states;
};

// One of these memories.
struct StageMemory {
  std::string name;
  std::size_t stage;    // whose states it keeps: its index in Geometry::stages
  std::int64_t length;  // states; at least 1
  net::MemoryCover cover;
};

// Every memory of a network, in order.
std::vector<StageMemory> memories_of(const net::Geometry& geometry);

// Throws ConfigError unless `memory` is one of `geometry`, `batch` and `d_model`.
void check_memory(const Memory& memory, const net::Geometry& geometry, std::int64_t batch,
                  std::int64_t d_model);

// Walks through the memories in the order of a step, joining and shifting them.
class MemoryWalk {
 public:
  // `keep_gradient`: what enters the next memory stays part of the graph.
  explicit MemoryWalk(const Memory& memory, bool keep_gradient = false)
      : memory_(memory), keep_gradient_(keep_gradient) {}
  // The window concat(memory, segment) of the next stage. The stage's new memory is the last of
  // concat(memory, segment[:shift]).
  at::Tensor join(const at::Tensor& segment, const net::Stage& stage);
  // The next stage's compressed memory: the newest of concat(compressed memory, compressed).
  void pass_compressed(const at::Tensor& compressed);
  // For those who join by themselves: the next memory, and what it becomes.
  const at::Tensor& current() const { return here().tensor; }
  void pass(at::Tensor next) { next_.states.push_back({here().name, std::move(next)}); }
  // The memories of the next stage, for those who walk through them many times: they pass what
  // these become at last.
  Memory of(const net::Stage& stage) const;
  Memory next() const { return next_; }

 private:
  const NamedTensor& here() const { return memory_.states[next_.states.size()]; }
  at::Tensor kept(const at::Tensor& states) const {
    return keep_gradient_ ? states : states.detach();
  }

  const Memory& memory_;
  bool keep_gradient_;
  Memory next_;
};

}  // namespace ql::nn
