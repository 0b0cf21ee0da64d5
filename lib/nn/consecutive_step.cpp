#include <algorithm>
#include <mutex>
#include <vector>

#include "machine/device.h"
#include "machine/pieces.h"
#include "nn/compression_internal.h"
#include "nn/step_internal.h"

namespace ql::nn {
namespace {

// A piece of a chunk has about so many states. A BLAS copies all weights for every piece, so the
// largest pieces are best, as long as there are enough of them and what a layer makes of a piece
// stays in a cache.
constexpr std::int64_t kFewestStatesOfPiece = 256, kMostStatesOfPiece = 512;
// Fewer pieces than this would leave threads without work.
constexpr std::int64_t kFewestPieces = 8;

// Returns what a memory holds one after the other, [length + steps * shift, ...]: before the first
// step it is `carry` [1, length, ...], and in every step a row of `entering` [steps, shift, ...]
// follows.
at::Tensor stream_of(const at::Tensor& carry, const at::Tensor& entering) {
  return at::cat({carry.squeeze(0), entering.flatten(0, 1)});
}

// Returns the memories before all steps [steps, length, ...]. In the stream, a step's memory ends
// where what enters in this step begins. Rows share storage.
at::Tensor memories_before(const at::Tensor& stream, std::int64_t steps, std::int64_t shift) {
  const std::int64_t length = stream.size(0) - steps * shift;
  return stream.unfold(0, length, shift).narrow(0, 0, steps).movedim(-1, 1);
}

// The memory [1, length, ...] after the last step, in storage of its own.
at::Tensor memory_after(const at::Tensor& carry, const at::Tensor& entering) {
  const std::int64_t steps = entering.size(0), shift = entering.size(1), length = carry.size(1);
  const std::int64_t last = std::min(steps, (length + shift - 1) / shift);
  const at::Tensor newest = entering.narrow(0, steps - last, last).flatten(0, 1).unsqueeze(0);
  const at::Tensor stream = at::cat({carry, newest}, 1);
  return stream.narrow(1, stream.size(1) - length, length).clone();
}

}  // namespace

// Makes the keys and values of every state once, when it is in a segment. The segments of the chunk
// are computed in pieces: first the keys and values of all, then, because a segment's memory is
// that of the segments before it, everything else.
at::Tensor ConsecutiveStep::layer(const LayerContext& context, const net::Stage& input,
                                  const at::Tensor& states, const at::Tensor& finer,
                                  StageMemory& memory) {
  if (geometry_.keeps_most_used()) return layer_row_by_row(context, input, states, memory);
  const auto keys_values = [&](const at::Tensor& of) {
    return project_keys_values(context, attention_states(context, of));
  };
  const std::int64_t steps = states.size(0);
  // Returns the keys and values of the memories of all steps, as the step of each finds them.
  const auto of_memories = [&](const at::Tensor& stream, std::int64_t shift,
                               const MemoryCover& cover) {
    const at::Tensor all = memories_before(stream, steps, shift);
    const at::Tensor mask = forgotten(cover, all.size(1));
    return mask.defined()
               ? replace_forgotten(
                     all, mask, keys_values(at::zeros_like(states.narrow(0, 0, 1).narrow(1, 0, 1))))
               : all;
  };
  at::Tensor carry, stream, place;
  if (input.memory > 0) carry = keys_values(memory.states);
  // If all states of a segment enter the memory, the pieces leave their keys and values in its
  // stream. Another pass over memory would cost 2 % of an evaluation.
  if (carry.defined() && !finer.defined() && input.shift == input.segment) {
    std::vector<std::int64_t> shape = carry.sizes().vec();
    shape.erase(shape.begin());
    shape.front() += steps * input.segment;
    stream = at::empty(shape, carry.options());
    stream.narrow(0, 0, input.memory).copy_(carry.squeeze(0));
    place =
        stream.narrow(0, input.memory, steps * input.segment).unflatten(0, {steps, input.segment});
  }
  const at::Tensor own = in_pieces(
      input, {finer.defined() ? finer : states},
      [&](const std::vector<at::Tensor>& piece) { return keys_values(piece.front()); }, place);
  std::vector<at::Tensor> parts;  // of the window, the oldest first
  if (input.compressed_memory > 0) {
    const at::Tensor leaving = window(input, states, memory).narrow(1, 0, input.segment);
    const at::Tensor compressed =
        compress_memories(context.network, context.parameters, leaving, {});
    parts.push_back(of_memories(stream_of(keys_values(memory.compressed), keys_values(compressed)),
                                compressed.size(1), compressed_memory_cover(geometry_)));
    memory.compressed = memory_after(memory.compressed, compressed);
  }
  if (input.memory > 0) {
    const at::Tensor entering = states.narrow(1, 0, input.shift);
    if (!stream.defined()) {
      stream =
          stream_of(carry, finer.defined() ? keys_values(entering) : own.narrow(1, 0, input.shift));
    }
    parts.push_back(of_memories(stream, input.shift, memory_cover(input)));
    memory.states = memory_after(memory.states, entering);
  }
  parts.push_back(own);
  LayerContext prepared = context;
  prepared.projected_positions = project_positions(context, positions(input));
  parts.insert(parts.begin(), states);
  return in_pieces(input, parts, [&](std::vector<at::Tensor> piece) {
    const at::Tensor of_piece = piece.front();
    piece.erase(piece.begin());
    return run_layer(prepared, of_piece, attention_states(context, of_piece), piece, {});
  });
}

at::Tensor ConsecutiveStep::in_pieces(
    const net::Stage& input, const std::vector<at::Tensor>& tensors,
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& work,
    at::Tensor results) const {
  const std::int64_t segments = tensors.front().size(0);
  const auto segments_of = [&](std::int64_t piece) {
    return std::max<std::int64_t>(1, piece / input.segment);
  };
  const std::int64_t smallest = segments_of(kFewestStatesOfPiece);
  const std::int64_t size =
      std::clamp(segments / kFewestPieces, smallest, segments_of(kMostStatesOfPiece));
  const bool few = segments < kFewestPieces * smallest;
  if (few || !machine::uses_kernels(tensors.front()) || options_.attention_map != nullptr) {
    return results.defined() ? results.copy_(work(tensors)) : work(tensors);
  }
  std::once_flag shape_is_known;
  machine::for_pieces(segments, size, [&](std::int64_t first, std::int64_t count) {
    std::vector<at::Tensor> piece;
    piece.reserve(tensors.size());
    for (const at::Tensor& all : tensors) piece.push_back(all.narrow(0, first, count));
    const at::Tensor result = work(piece);
    std::call_once(shape_is_known, [&] {
      if (results.defined()) return;
      std::vector<std::int64_t> shape = result.sizes().vec();
      shape.front() = segments;
      results = at::empty(shape, result.options());
    });
    // The copy finds the piece's result in the thread's cache.
    results.narrow(0, first, count).copy_(result);
  });
  return results;
}

// A step's attention decides which states it leaves in the compressed memory, so the next one
// waits for it.
at::Tensor ConsecutiveStep::layer_row_by_row(const LayerContext& context, const net::Stage& input,
                                             const at::Tensor& states, StageMemory& memory) {
  std::vector<at::Tensor> outputs;
  for (std::int64_t row = 0; row < states.size(0); ++row) {
    StepOptions of_row = options_;
    const auto at = static_cast<std::size_t>(row);
    if (!options_.ages.empty()) of_row.ages = {options_.ages[at]};
    if (!options_.shown.empty()) of_row.shown = {options_.shown[at]};
    forget_other_documents(memory, input, geometry_, of_row);
    const LayerContext row_context{context.network, context.parameters,    of_row,
                                   context.layer,   context.reach,         context.usage,
                                   context.hidden,  context.keys_per_state};
    outputs.push_back(layer_of_streams(row_context, input, states.narrow(0, row, 1), {}, memory));
  }
  return at::cat(outputs);
}

at::Tensor ConsecutiveStep::window_of_output(const net::Stage& output, const at::Tensor& states,
                                             StageMemory& memory) {
  at::Tensor result = window(output, states, memory);
  if (output.memory > 0) {
    memory.states = memory_after(memory.states, states.narrow(1, 0, output.shift));
  }
  return result;
}

// The windows of all steps, as the step of each finds them.
at::Tensor ConsecutiveStep::window(const net::Stage& stage, const at::Tensor& states,
                                   const StageMemory& memory) const {
  if (stage.memory == 0) return states;
  const at::Tensor before = memories_before(
      stream_of(memory.states, states.narrow(1, 0, stage.shift)), states.size(0), stage.shift);
  const at::Tensor mask = forgotten(memory_cover(stage), stage.memory);
  return at::cat({replace_forgotten(before, mask), states}, 1);
}

at::Tensor ConsecutiveStep::forgotten(const MemoryCover& cover, std::int64_t length) const {
  return forgotten_states(cover, length, options_, model_.options().device());
}

}  // namespace ql::nn
