#include "nn/growing_segment.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ql::nn {
namespace {

// Short windows get room for so many states, because moving them costs an operation.
constexpr std::int64_t kLeastRoom = 64;

at::Tensor chosen(const at::Tensor& tensor, const at::Tensor& indexes) {
  return tensor.defined() ? tensor.index_select(0, indexes) : tensor;
}

}  // namespace

Tape::Tape(const at::Tensor& memory, std::int64_t segment)
    : length_(memory.size(1)), segment_(segment) {
  std::vector<std::int64_t> shape = memory.sizes().vec();
  shape[1] = std::max(2 * (length_ + segment_), kLeastRoom);
  buffer_ = at::empty(shape, memory.options());
  buffer_.narrow(1, 0, length_).copy_(memory);
}

at::Tensor Tape::memory() const { return buffer_.narrow(1, begin_, length_); }
at::Tensor Tape::window() const { return buffer_.narrow(1, begin_, length_ + filled_); }

void Tape::put(const at::Tensor& states) {
  const std::int64_t count = states.size(1);
  if (filled_ + count > segment_) throw std::logic_error("more states than a segment has");
  buffer_.narrow(1, begin_ + length_ + filled_, count).copy_(states);
  filled_ += count;
}

void Tape::shift(std::int64_t shift) {
  begin_ += shift;
  filled_ = 0;
  if (begin_ + length_ + segment_ <= buffer_.size(1)) return;
  // With twice the room of a window, the memory does not overlap its new place, and the window of
  // this segment, which somebody may hold, does not either.
  buffer_.narrow(1, 0, length_).copy_(memory());
  begin_ = 0;
}

Tape Tape::streams(const at::Tensor& indexes) const {
  Tape tape = *this;
  std::vector<std::int64_t> shape = buffer_.sizes().vec();
  shape[0] = indexes.size(0);
  tape.buffer_ = at::empty(shape, buffer_.options());
  // Nobody reads the buffer around the window any more.
  tape.buffer_.narrow(1, begin_, length_ + filled_).copy_(window().index_select(0, indexes));
  return tape;
}

GrowingSegment::GrowingSegment(const net::Geometry& geometry, const Memory& memory,
                               std::int64_t batch, const at::TensorOptions& options,
                               std::int64_t age)
    : age_(age) {
  for (std::size_t i = 0; i < geometry.stages.size(); ++i) {
    const net::Stage& stage = geometry.stages[i];
    const StageMemory& of_stage = memory.stages[i];
    const at::Tensor states =
        of_stage.states.defined() ? of_stage.states : at::empty({batch, 0, stage.width}, options);
    stages_.push_back({Tape(states, stage.segment), {}, of_stage.compressed, {}, {}, {}});
  }
}

std::int64_t GrowingSegment::batch() const { return stages_.front().states.window().size(0); }

GrowingSegment GrowingSegment::streams(const std::vector<std::int64_t>& indexes) const {
  const at::Tensor chosen_ones = at::tensor(indexes).to(stages_.front().states.window().device());
  GrowingSegment segment;
  segment.tokens_ = tokens_;
  segment.age_ = age_;
  for (const GrowingStage& stage : stages_) {
    std::optional<Tape> keys_values;
    if (stage.keys_values) keys_values = stage.keys_values->streams(chosen_ones);
    segment.stages_.push_back({stage.states.streams(chosen_ones), std::move(keys_values),
                               chosen(stage.compressed, chosen_ones),
                               chosen(stage.compressed_keys_values, chosen_ones),
                               chosen(stage.usage, chosen_ones), stage.positions});
  }
  return segment;
}

std::int64_t GrowingSegment::bytes_per_stream() const {
  std::int64_t bytes = 0;
  for (const GrowingStage& stage : stages_) {
    // Keys and values may not be there yet. Each is about as wide as a state.
    bytes += stage.states.bytes() +
             (stage.keys_values ? stage.keys_values->bytes() : 2 * stage.states.bytes());
    for (const at::Tensor& tensor : {stage.compressed, stage.compressed_keys_values}) {
      if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  return bytes / batch();
}

Memory GrowingSegment::memory() const {
  if (tokens_ != 0) throw std::logic_error("a segment is under way");
  Memory memory;
  for (const GrowingStage& stage : stages_) {
    const at::Tensor states = stage.states.memory();
    memory.stages.push_back({states.size(1) > 0 ? states : at::Tensor(), stage.compressed});
  }
  return memory;
}

}  // namespace ql::nn
