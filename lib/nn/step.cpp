#include "nn/step_internal.h"

#include <vector>

#include "kernels/projection.h"
#include "nn/accumulation_internal.h"
#include "nn/compression_internal.h"
#include "nn/pooling_internal.h"

namespace ql::nn {

Step::Step(const Model& model, const LengthTables& tables, const StepOptions& options,
           Memory& memory)
    : model_(model),
      geometry_(tables.geometry),
      options_(options),
      tables_(tables),
      memory_(memory) {
  const net::Network& network = model.network();
  for (std::size_t scale = 0; scale <= network.scales.size(); ++scale) {
    const std::int64_t width = network.width_of(scale);
    if (positions_.count(width) > 0) continue;
    positions_[width] =
        dropout_of_shared(tables.positions.at(width), network.dropout, options,
                          {DropoutSite::kPosition, static_cast<std::int64_t>(scale)});
  }
}

at::Tensor Step::run(at::Tensor states) {
  const net::Network& network = model_.network();
  at::Tensor window;  // of a scale's output, and then the groups of it that become new states
  at::Tensor finer;   // those of its states that became the next scale's segment
  std::vector<at::Tensor> upsampled;
  for (std::size_t i = 0; i < geometry_.stages.size(); ++i) {
    const net::Stage& stage = geometry_.stages[i];
    switch (stage.source) {
      case net::Stage::Source::kTokens:
        break;
      case net::Stage::Source::kLayer:
        states = layer_over(i - 1, states, finer);
        finer = at::Tensor();
        break;
      case net::Stage::Source::kCompressed:
        window = new_groups(stage, window);
        states = widen(compress(window, network.pool, geometry_.rate), stage.scale);
        if (stage.keys_per_state > 1) finer = widen(window, stage.scale);
        window = at::Tensor();
        break;
      case net::Stage::Source::kAveraged:
        states = average_scales(upsampled, network.droppath, options_);
        break;
    }
    if (!stage.feeds_layer() && stage.scale < geometry_.outputs.size()) {
      window = window_of_output(stage, states, memory_.stages[i]);
      upsampled.push_back(states_of_tokens(stage, states, window));
    }
  }
  return dropout(states, network.dropout, options_, {DropoutSite::kFinal});
}

at::Tensor Step::reconstruction() const {
  return reconstruction_.defined()
             ? reconstruction_ / static_cast<double>(model_.network().layers())
             : at::Tensor();
}

at::Tensor Step::widen(const at::Tensor& states, std::size_t scale) const {
  const at::Tensor& map = model_.weights().widenings[scale];
  return map.defined() ? kernels::project(states, map) : states;
}

at::Tensor Step::narrow(const at::Tensor& states, std::size_t scale) const {
  const at::Tensor& map = model_.weights().narrowings[scale];
  return map.defined() ? kernels::project(states, map) : states;
}

at::Tensor Step::layer_over(std::size_t input, const at::Tensor& states, const at::Tensor& finer) {
  const net::Stage& stage = geometry_.stages[input];
  const LayerContext context{model_.network(),
                             model_.weights().layers[static_cast<std::size_t>(stage.layer)],
                             options_,
                             stage.layer,
                             {stage.span, model_.network().attention_dilation},
                             nullptr,
                             tables_.hidden_keys[input],
                             stage.keys_per_state};
  return layer(context, stage, states, finer, memory_.stages[input]);
}

at::Tensor Step::new_groups(const net::Stage& stage, const at::Tensor& window) {
  const std::int64_t length = stage.segment * geometry_.rate;
  return window.narrow(1, window.size(1) - length, length);
}

at::Tensor Step::states_of_tokens(const net::Stage& output, const at::Tensor& states,
                                  const at::Tensor& window) {
  const at::Tensor previous = output.memory > 0
                                  ? narrow(window.narrow(1, output.memory - 1, 1), output.scale)
                                  : at::Tensor();
  return upsample(narrow(states, output.scale), previous, output);
}

at::Tensor Step::positions(const net::Stage& input) const {
  const at::Tensor& table = positions_.at(input.width);
  // A shorter window sees the shorter distances, which are the last.
  return table.narrow(0, table.size(0) - input.window(), input.window());
}

at::Tensor Step::window_of_streams(const net::Stage& stage, const at::Tensor& states,
                                   StageMemory& memory) const {
  std::vector<at::Tensor> parts;
  if (stage.compressed_memory > 0) parts.push_back(memory.compressed);
  if (stage.memory > 0) parts.push_back(memory.states);
  if (parts.empty()) return states;
  parts.push_back(states);
  at::Tensor window = at::cat(parts, 1);
  // concat(memory, segment[:shift]) is in the window, in one piece.
  if (stage.memory > 0) {
    memory.states = (options_.through_memory ? window : window.detach())
                        .narrow(1, stage.compressed_memory + stage.shift, stage.memory);
  }
  return window;
}

at::Tensor Step::layer_of_streams(const LayerContext& context, const net::Stage& input,
                                  const at::Tensor& states, const at::Tensor& finer,
                                  StageMemory& memory) {
  const at::Tensor window = window_of_streams(input, states, memory);
  if (finer.defined()) {
    const at::Tensor keys = at::cat({window.narrow(1, 0, input.memory), finer}, 1);
    return run_layer(context, states, attention_states(context, states),
                     {project_keys_values(context, attention_states(context, keys))},
                     positions(input));
  }
  if (input.compressed_memory == 0) {
    return run_layer(context, window, states, positions(input));
  }
  const CompressiveOutput output =
      run_compressive_layer(context, window, states, input, positions(input));
  memory.compressed = output.compressed_memory;
  if (output.reconstruction.defined()) {
    reconstruction_ =
        reconstruction_.defined() ? reconstruction_ + output.reconstruction : output.reconstruction;
  }
  return output.states;
}

at::Tensor StreamsStep::layer(const LayerContext& context, const net::Stage& input,
                              const at::Tensor& states, const at::Tensor& finer,
                              StageMemory& memory) {
  return layer_of_streams(context, input, states, finer, memory);
}

at::Tensor StreamsStep::window_of_output(const net::Stage& output, const at::Tensor& states,
                                         StageMemory& memory) {
  return window_of_streams(output, states, memory);
}

}  // namespace ql::nn
