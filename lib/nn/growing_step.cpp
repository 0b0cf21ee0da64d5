#include <stdexcept>

#include "nn/compression_internal.h"
#include "nn/growing_segment.h"
#include "nn/step_internal.h"

namespace ql::nn {
namespace {

at::Tensor newest(const at::Tensor& older, const at::Tensor& newer) {
  const at::Tensor all = at::cat({older, newer}, 1);
  return all.narrow(1, newer.size(1), older.size(1));
}

}  // namespace

GrowingStep::GrowingStep(const Model& model, const LengthTables& tables, const StepOptions& options,
                         GrowingSegment& growing, std::int64_t tokens)
    : Step(model, tables, options, unused_), growing_(growing), tokens_(tokens) {
  unused_.stages.resize(tables.geometry.stages.size());
}

GrowingStage& GrowingStep::growing_of(const net::Stage& stage) {
  return growing_.stages_[static_cast<std::size_t>(&stage - geometry_.stages.data())];
}

at::Tensor GrowingStep::layer(const LayerContext& context, const net::Stage& input,
                              const at::Tensor& states, const at::Tensor& finer,
                              StageMemory& /*memory*/) {
  const std::int64_t count = states.size(1);
  if (count == 0) return states;
  GrowingStage& growing = growing_of(input);
  const auto keys_values = [&](const at::Tensor& of) {
    return project_keys_values(context, attention_states(context, of));
  };
  if (!growing.keys_values) {
    growing.keys_values.emplace(keys_values(growing.states.memory()), input.segment_keys());
  }
  const at::Tensor normalized = attention_states(context, states);
  growing.keys_values->put(finer.defined() ? keys_values(finer)
                                           : project_keys_values(context, normalized));
  growing.states.put(states);

  std::vector<at::Tensor> parts;
  if (input.compressed_memory > 0) {
    at::Tensor& compressed = growing.compressed_keys_values;
    if (!compressed.defined()) compressed = keys_values(growing.compressed);
    parts.push_back(compressed);
  }
  parts.push_back(growing.keys_values->window());
  const std::int64_t keys = input.compressed_memory + parts.back().size(1);
  LayerContext so_far = context;
  so_far.hidden = at::Tensor();
  so_far.projected_positions = positions_so_far(context, input, keys);
  at::Tensor usage;
  if (geometry_.keeps_most_used()) so_far.usage = &usage;
  const at::Tensor output = run_layer(so_far, states, normalized, parts, positions(input));
  if (usage.defined()) {
    if (!growing.usage.defined()) {
      growing.usage = at::zeros({usage.size(0), input.window()}, usage.options());
    }
    growing.usage.narrow(1, 0, keys).add_(usage, static_cast<double>(count));
  }
  if (growing.states.filled() == input.segment) end_segment(context, input);
  return output;
}

at::Tensor GrowingStep::positions_so_far(const LayerContext& context, const net::Stage& input,
                                         std::int64_t keys) {
  at::Tensor& all = growing_of(input).positions;
  if (!all.defined()) all = project_positions(context, positions(input));
  if (!all.defined()) return all;
  // Softmax attention knows the distance from a query. Linear attention knows the distance from the
  // end of the window, as it will be when the segment is whole.
  const bool linear = context.network.attention == net::Attention::kLinear;
  return all.narrow(0, linear ? 0 : all.size(0) - keys, keys);
}

void GrowingStep::end_segment(const LayerContext& context, const net::Stage& input) {
  GrowingStage& growing = growing_of(input);
  if (input.compressed_memory > 0) {
    const at::Tensor leaving = growing.states.window().narrow(1, 0, input.segment);
    const at::Tensor usage = growing.usage.defined()
                                 ? growing.usage.narrow(1, input.compressed_memory, input.segment)
                                 : growing.usage;
    const at::Tensor compressed =
        compress_memories(context.network, context.parameters, leaving, usage);
    growing.compressed = newest(growing.compressed, compressed);
    growing.compressed_keys_values =
        newest(growing.compressed_keys_values,
               project_keys_values(context, attention_states(context, compressed)));
    growing.usage = at::Tensor();
  }
  growing.states.shift(input.shift);
  if (input.keys_per_state == 1) {
    growing.keys_values->shift(input.shift);
  } else {
    // In the memory a state has keys and values of its own, not those of finer states.
    growing.keys_values.reset();
  }
}

at::Tensor GrowingStep::window_of_output(const net::Stage& output, const at::Tensor& states,
                                         StageMemory& /*memory*/) {
  Tape& tape = growing_of(output).states;
  tape.put(states);
  const at::Tensor window = tape.window();
  if (tape.filled() == output.segment) tape.shift(output.shift);
  return window;
}

at::Tensor GrowingStep::new_groups(const net::Stage& stage, const at::Tensor& window) {
  const net::Stage& finer = *(&stage - 1);
  const std::int64_t rate = geometry_.rate, whole = finer.window();
  // The groups end where the whole window will. Those are there whose last state is.
  const std::int64_t missing = (whole - window.size(1) + rate - 1) / rate;
  const std::int64_t before = growing_of(stage).states.filled();
  const std::int64_t count = stage.segment - missing - before;
  if (count <= 0) return window.narrow(1, 0, 0);
  return window.narrow(1, whole - (stage.segment - before) * rate, count * rate);
}

at::Tensor GrowingStep::states_of_tokens(const net::Stage& output, const at::Tensor& /*states*/,
                                         const at::Tensor& window) {
  // Token p takes the state before the new ones, or the last of the (p + 1) / g new ones that are
  // complete then. A stage that keeps no such state has zeros before its first.
  const bool has_older = output.memory + output.segment > output.shift;
  const at::Tensor all =
      has_older
          ? window
          : at::cat({at::zeros({window.size(0), 1, window.size(2)}, window.options()), window}, 1);
  const std::int64_t older = has_older ? output.memory + output.segment - output.shift : 1;
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < tokens_; ++i) {
    places.push_back(older - 1 + (growing_.tokens_ + i + 1) / output.granularity);
  }
  const at::Tensor index = at::tensor(places, at::TensorOptions(at::kLong)).to(window.device());
  return narrow(all.index_select(1, index), output.scale);
}

}  // namespace ql::nn
