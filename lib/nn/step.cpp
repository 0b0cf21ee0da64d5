// Runs the stages of a step in order, over complete segments of independent streams or of one
// stream.

#include "nn/step.h"

#include <mutex>

#include "base/process.h"
#include "machine/threads.h"
#include "nn/compression.h"
#include "nn/dropout.h"
#include "nn/encoding.h"

namespace ql::nn {

StepContext::StepContext(const Model& model, const LengthTables& tables, const StepOptions& options)
    : model_(model), tables_(tables), options_(options) {
  const net::Network& network = model.network();
  for (std::size_t scale = 0; scale <= network.scales.size(); ++scale) {
    const std::int64_t width = network.width_of(scale);
    if (positions_.count(width) > 0) continue;
    positions_[width] =
        dropout_of_shared(tables.positions.at(width), network.dropout, options,
                          {DropoutSite::kPosition, static_cast<std::int64_t>(scale)});
  }
}

LayerContext StepContext::layer(const net::Stage& input, const StepOptions& options) const {
  const net::Network& network = model_.network();
  const at::Tensor& table = positions_.at(input.width);
  return {network,
          model_.weights().layers[static_cast<std::size_t>(input.layer)],
          options,
          input.layer,
          {input.span, network.attention_dilation},
          nullptr,
          tables_.attention_mask[input.index],
          input.keys_per_state,
          // A shorter window has the shorter distances, which are the last rows.
          table.narrow(0, table.size(0) - input.window(), input.window())};
}

at::Tensor StepContext::widen(const at::Tensor& states, std::size_t scale) const {
  const at::Tensor& map = model_.weights().widenings[scale];
  return map.defined() ? kernels::project(states, map).to(map.scalar_type()) : states;
}

at::Tensor StepContext::narrow(const at::Tensor& states, std::size_t scale) const {
  const at::Tensor& map = model_.weights().narrowings[scale];
  return map.defined() ? kernels::project(states, map).to(map.scalar_type()) : states;
}

at::Tensor StepKind::new_groups(const net::Stage& stage, const at::Tensor& window) {
  const std::int64_t length = stage.segment * step_.geometry().rate;
  return window.narrow(1, window.size(1) - length, length);
}

at::Tensor StepKind::states_of_tokens(const net::Stage& output, const at::Tensor& states,
                                      const at::Tensor& window) {
  const at::Tensor previous =
      output.memory > 0 ? step_.narrow(window.narrow(1, output.memory - 1, 1), output.scale)
                        : at::Tensor();
  return upsample(step_.narrow(states, output.scale), previous, output);
}

at::Tensor run_step(const StepContext& step, StepKind& kind, at::Tensor states) {
  const net::Network& network = step.model().network();
  const net::Geometry& geometry = step.geometry();
  at::Tensor window;  // the window of a scale's output, from which the next scale is compressed
  at::Tensor finer;   // the states before compression, if the next layer's keys come from them
  std::vector<at::Tensor> upsampled;
  for (const net::Stage& stage : geometry.stages) {
    switch (stage.source) {
      case net::Stage::Source::kTokens:
        break;
      case net::Stage::Source::kLayer: {
        const net::Stage& input = geometry.stages[stage.index - 1];
        states = kind.layer(step.layer(input), input, states, finer);
        finer = at::Tensor();
        break;
      }
      case net::Stage::Source::kCompressed:
        window = kind.new_groups(stage, window);
        states = step.widen(compress(window, network.pool, geometry.rate), stage.scale);
        if (stage.keys_per_state > 1) finer = step.widen(window, stage.scale);
        window = at::Tensor();
        break;
      case net::Stage::Source::kAveraged:
        states = average_scales(upsampled, network.droppath, step.options());
        break;
    }
    if (!stage.feeds_layer() && stage.scale < geometry.outputs.size()) {
      window = kind.window_of(stage, states);
      upsampled.push_back(kind.states_of_tokens(stage, states, window));
    }
  }
  return dropout(states, network.dropout, step.options(), {DropoutSite::kFinal});
}

at::Tensor StreamStep::window_of(const net::Stage& stage, const at::Tensor& states) {
  StageMemory& memory = memory_.stages[stage.index];
  std::vector<at::Tensor> parts;
  if (stage.compressed_memory > 0) parts.push_back(memory.compressed);
  if (stage.memory > 0) parts.push_back(memory.states);
  if (parts.empty()) return states;
  parts.push_back(states);
  at::Tensor window = at::cat(parts, 1);
  // concat(memory, segment[:new_states]) is contiguous in the window.
  if (stage.memory > 0) {
    memory.states = (step_.options().through_memory ? window : window.detach())
                        .narrow(1, stage.compressed_memory + stage.new_states, stage.memory);
  }
  return window;
}

at::Tensor StreamStep::layer(const LayerContext& context, const net::Stage& input,
                             const at::Tensor& states, const at::Tensor& finer) {
  const at::Tensor window = window_of(input, states);
  if (finer.defined()) {
    const at::Tensor keys = at::cat({window.narrow(1, 0, input.memory), finer}, 1);
    return run_layer_with_keys(context, states, attention_states(context, states),
                               {project_keys_values(context, attention_states(context, keys))});
  }
  if (input.compressed_memory == 0) return run_layer(context, window, states);
  const CompressiveOutput output = run_compressive_layer(context, window, states, input);
  memory_.stages[input.index].compressed = output.compressed_memory;
  if (output.reconstruction.defined()) {
    reconstruction_ =
        reconstruction_.defined() ? reconstruction_ + output.reconstruction : output.reconstruction;
  }
  return output.states;
}

at::Tensor StreamStep::reconstruction() const {
  return reconstruction_.defined()
             ? reconstruction_ / static_cast<double>(step_.model().network().layers())
             : at::Tensor();
}

// These limit the number of states in one piece of work. A BLAS copies all weights for every piece,
// so the largest pieces are best, as long as there are enough pieces and a layer's intermediate
// results for a piece stay in a cache.
constexpr std::int64_t kFewestStatesOfPiece = 256, kMostStatesOfPiece = 512;
// Fewer pieces than this would leave threads without work.
constexpr std::int64_t kFewestPieces = 8;

// Returns all states of `carry` and `entering`, the oldest first: [length + steps * shift, ...].
// `carry` [1, length, ...] is the memory before the first step. Each row of `entering` [steps,
// shift, ...] has the states that enter the memory in one step.
static at::Tensor stream_of(const at::Tensor& carry, const at::Tensor& entering) {
  return at::cat({carry.squeeze(0), entering.flatten(0, 1)});
}

// Returns the memory before each step, [steps, length, ...], from the result of stream_of(). There,
// a step's memory is followed by the states that enter in this step. The rows of the result share
// storage.
static at::Tensor memories_before(const at::Tensor& stream, std::int64_t steps,
                                  std::int64_t shift) {
  const std::int64_t length = stream.size(0) - steps * shift;
  return stream.unfold(0, length, shift).narrow(0, 0, steps).movedim(-1, 1);
}

// Returns the memory [1, length, ...] after the last step, in new storage.
static at::Tensor memory_after(const at::Tensor& carry, const at::Tensor& entering) {
  const std::int64_t steps = entering.size(0), shift = entering.size(1), length = carry.size(1);
  const std::int64_t last = std::min(steps, (length + shift - 1) / shift);
  return newest_states(carry, entering.narrow(0, steps - last, last).flatten(0, 1).unsqueeze(0));
}

// Computes first the keys and values of all segments, then everything else, because a segment's
// memory has states of the segments before it. Each of these two phases divides the segments into
// pieces. If `finer` (states before pooling) is undefined, memories take their keys and values from
// the first phase. Otherwise the keys and values of memories are projected from `states`.
at::Tensor LayerwiseStep::layer(const LayerContext& context, const net::Stage& input,
                                const at::Tensor& states, const at::Tensor& finer) {
  check_for_stop();  // a layer may take minutes
  const net::Geometry& geometry = step_.geometry();
  if (geometry.keeps_most_used()) return layer_row_by_row(input, states);
  StageMemory& memory = memory_of(input);
  const auto keys_values = [&](const at::Tensor& of) {
    return project_keys_values(context, attention_states(context, of));
  };
  const std::int64_t steps = states.size(0);
  // Returns the keys and values of the memories that the steps begin with.
  const auto of_memories = [&](const at::Tensor& stream, std::int64_t shift,
                               const MemoryCover& cover) {
    const at::Tensor all = memories_before(stream, steps, shift);
    const at::Tensor mask =
        forgotten_states(cover, all.size(1), step_.options(), step_.model().options().device());
    return mask.defined()
               ? replace_forgotten(
                     all, mask, keys_values(at::zeros_like(states.narrow(0, 0, 1).narrow(1, 0, 1))))
               : all;
  };
  at::Tensor carry, stream, place;
  if (input.memory > 0) carry = keys_values(memory.states);
  // If all states of a segment enter the memory, their keys and values are written directly to the
  // place that stream_of() would copy them to. The copy would cost 2 % of an evaluation.
  if (carry.defined() && !finer.defined() && input.new_states == input.segment) {
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
  std::vector<at::Tensor> parts;  // parts of the window, the oldest first
  if (input.compressed_memory > 0) {
    const at::Tensor leaving = windows(input, states).narrow(1, 0, input.segment);
    const at::Tensor compressed =
        compress_memories(context.network, context.parameters, leaving, {});
    parts.push_back(of_memories(stream_of(keys_values(memory.compressed), keys_values(compressed)),
                                compressed.size(1), compressed_memory_cover(geometry)));
    memory.compressed = memory_after(memory.compressed, compressed);
  }
  if (input.memory > 0) {
    const at::Tensor entering = states.narrow(1, 0, input.new_states);
    if (!stream.defined()) {
      stream = stream_of(
          carry, finer.defined() ? keys_values(entering) : own.narrow(1, 0, input.new_states));
    }
    parts.push_back(of_memories(stream, input.new_states, memory_cover(input)));
    memory.states = memory_after(memory.states, entering);
  }
  parts.push_back(own);
  LayerContext prepared = context;
  prepared.position_scores =
      position_scores(context.network, context.parameters.attention, context.position_table);
  parts.insert(parts.begin(), states);
  return in_pieces(input, parts, [&](std::vector<at::Tensor> piece) {
    const at::Tensor of_piece = piece.front();
    piece.erase(piece.begin());
    return run_layer_with_keys(prepared, of_piece, attention_states(context, of_piece), piece);
  });
}

at::Tensor LayerwiseStep::in_pieces(
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
  if (few || !machine::uses_kernels(tensors.front()) || step_.options().attention_map != nullptr) {
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
    // The piece's result is still in the thread's cache when it is copied.
    results.narrow(0, first, count).copy_(result);
  });
  return results;
}

// Computes one row after the other, each as a step of a single stream. Each row is a segment, whose
// attention decides which states the next row has in its compressed memory.
at::Tensor LayerwiseStep::layer_row_by_row(const net::Stage& input, const at::Tensor& states) {
  const StepOptions& options = step_.options();
  StreamStep stream(step_, memory_);
  std::vector<at::Tensor> outputs;
  for (std::int64_t row = 0; row < states.size(0); ++row) {
    StepOptions of_row = options;
    const auto at = static_cast<std::size_t>(row);
    if (!options.document_offsets.empty()) of_row.document_offsets = {options.document_offsets[at]};
    if (!options.shown.empty()) of_row.shown = {options.shown[at]};
    forget_other_documents(memory_of(input), input, step_.geometry(), of_row);
    outputs.push_back(
        stream.layer(step_.layer(input, of_row), input, states.narrow(0, row, 1), {}));
  }
  return at::cat(outputs);
}

at::Tensor LayerwiseStep::window_of(const net::Stage& output, const at::Tensor& states) {
  at::Tensor result = windows(output, states);
  if (output.memory > 0) {
    at::Tensor& memory = memory_of(output).states;
    memory = memory_after(memory, states.narrow(1, 0, output.new_states));
  }
  return result;
}

StageMemory& LayerwiseStep::memory_of(const net::Stage& stage) const {
  return memory_.stages[stage.index];
}

// Returns the windows of all rows, without their compressed memory.
at::Tensor LayerwiseStep::windows(const net::Stage& stage, const at::Tensor& states) const {
  if (stage.memory == 0) return states;
  const at::Tensor before =
      memories_before(stream_of(memory_of(stage).states, states.narrow(1, 0, stage.new_states)),
                      states.size(0), stage.new_states);
  const at::Tensor mask = forgotten_states(memory_cover(stage), stage.memory, step_.options(),
                                           step_.model().options().device());
  return at::cat({replace_forgotten(before, mask), states}, 1);
}

}  // namespace ql::nn
