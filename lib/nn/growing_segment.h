// The segment under way of streams that come token by token, with everything that the next token
// needs of those before it: states, keys and values. Nothing is computed a second time.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "net/geometry.h"
#include "nn/memory.h"

namespace ql::nn {

// A window that grows: a memory, and the states of a segment as they come. Rows are streams, and
// [...] is the shape of a state.
class Tape {
 public:
  // `memory` [batch, length, ...]; a segment of at most `segment` states follows it.
  Tape(const at::Tensor& memory, std::int64_t segment);

  std::int64_t filled() const { return filled_; }  // states of the segment
  at::Tensor memory() const;                       // [batch, length, ...]
  // The memory and the segment so far, [batch, length + filled, ...]. It shares its storage with
  // the tape, so it is good until the next change.
  at::Tensor window() const;
  void put(const at::Tensor& states);
  // Ends the segment: the memory becomes the newest states of concat(memory, segment[:shift]).
  void shift(std::int64_t shift);
  Tape streams(const at::Tensor& indexes) const;
  std::int64_t bytes() const { return static_cast<std::int64_t>(buffer_.nbytes()); }

 private:
  at::Tensor buffer_;  // [batch, room, ...], longer than the window, so that it seldom moves
  std::int64_t length_, segment_;
  std::int64_t begin_ = 0, filled_ = 0;
};

struct GrowingStage {
  Tape states;
  std::optional<Tape> keys_values;  // [.., 2, n_head, d_head]; made at the segment's first states
  // A Compressive Transformer has n_cm compressed states, their keys and values, and counts how
  // much attention each place of the window has had in this segment.
  at::Tensor compressed, compressed_keys_values, usage;
  at::Tensor positions;  // project_positions() of the whole window, the same for all streams
};

// Begins where whole segments ended.
class GrowingSegment {
 public:
  // `memory` is what ModelAtLengths::forward() or forward_stream() left for `batch` streams. `age`
  // counts the tokens of the document before the segment, for a network that resets its memory at
  // documents. The `options` are the model's.
  GrowingSegment(const net::Geometry& geometry, const Memory& memory, std::int64_t batch,
                 const at::TensorOptions& options, std::int64_t age = 0);

  // A copy would share tensors that change.
  GrowingSegment(const GrowingSegment&) = delete;
  GrowingSegment& operator=(const GrowingSegment&) = delete;
  GrowingSegment(GrowingSegment&&) = default;
  GrowingSegment& operator=(GrowingSegment&&) = default;
  ~GrowingSegment() = default;

  std::int64_t batch() const;
  // Returns the streams with these indexes, of which one may come several times, in memory of their
  // own.
  GrowingSegment streams(const std::vector<std::int64_t>& indexes) const;
  // The memory of one stream.
  std::int64_t bytes_per_stream() const;
  // The memory after whole segments, good until the next change. Throws std::logic_error inside a
  // segment.
  Memory memory() const;
  // Says that the next token begins a document.
  void begin_document() { age_ = 0; }

 private:
  GrowingSegment() = default;
  friend class ModelAtLengths;
  friend class GrowingStep;
  std::vector<GrowingStage> stages_;
  std::int64_t tokens_ = 0;  // of the segment so far
  std::int64_t age_ = 0;     // tokens of the document so far
};

}  // namespace ql::nn
