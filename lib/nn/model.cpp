#include "nn/model.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/attention.h"
#include "machine/device.h"
#include "nn/accumulation_internal.h"
#include "nn/adaptive_softmax_internal.h"
#include "nn/compression_internal.h"
#include "nn/consecutive_memories_internal.h"
#include "nn/document_reset_internal.h"
#include "nn/embedding_internal.h"
#include "nn/initialisation_internal.h"
#include "nn/layers_internal.h"
#include "nn/pooling_internal.h"

namespace ql::nn {
namespace {

void check_network(const net::Network& network) {
  network.check();
  if (network.vocab_size < 1) {
    throw ConfigError("vocab_size",
                      fmt::format("expected at least 1, found {}", network.vocab_size),
                      "take it from the vocabulary of the training data");
  }
}

void check_geometry(const net::Network& network, const net::Geometry& geometry) {
  if (!(net::make_geometry(network, geometry.lengths) == geometry)) {
    throw ConfigError("geometry", "it was made for another network",
                      "make it from this model's network");
  }
}

void check_embedded(const at::Tensor& embedded, std::int64_t segment, std::int64_t d_model) {
  if (!embedded.defined() || embedded.dim() != 3 || embedded.size(1) != segment ||
      embedded.size(2) != d_model) {
    throw ConfigError("embedded tokens",
                      fmt::format("expected batch x {} x {} numbers", segment, d_model));
  }
}

void check_ages(const net::Network& network, const std::vector<std::int64_t>& ages,
                std::int64_t rows) {
  const std::int64_t expected = network.reset_memory_at_documents ? rows : 0;
  const auto found = static_cast<std::int64_t>(ages.size());
  if (found != expected ||
      std::any_of(ages.begin(), ages.end(), [](auto age) { return age < 0; })) {
    throw ConfigError("ages", fmt::format("expected {} of at least 0, found {}", expected, found),
                      "a network that resets its memory at documents, and no other, needs one for "
                      "every row");
  }
}

// What the rows of a batch are: a step of each of several streams, or consecutive steps of one.
enum class Rows { kStreams, kConsecutive };

// A step in progress: the memories it walks through and what every layer needs.
class Step {
 public:
  Step(const net::Network& network, const Parameters& parameters, const net::Geometry& geometry,
       const Memory& memory, const StepOptions& options, const at::TensorOptions& tensor_options,
       Rows rows)
      : network_(network),
        parameters_(parameters),
        geometry_(geometry),
        memory_(memory, options.through_memory),
        options_(options),
        rows_(rows) {
    std::int64_t longest = 0;
    for (const net::Stage& stage : geometry.stages) {
      longest = std::max(longest, stage.feeds_layer() ? stage.window() : 0);
    }
    // Other encodings need its length alone.
    positions_ = network.encoding == net::Encoding::kTransformerXl
                     ? dropout_of_shared(position_table(network, longest, tensor_options),
                                         network.dropout, options, {DropoutSite::kPosition})
                     : at::empty({longest, 0}, tensor_options);
  }

  at::Tensor run(at::Tensor states) {
    at::Tensor window;  // of a scale's output
    std::vector<at::Tensor> upsampled;
    for (std::size_t i = 0; i < geometry_.stages.size(); ++i) {
      const net::Stage& stage = geometry_.stages[i];
      switch (stage.source) {
        case net::Stage::Source::kTokens:
          break;
        case net::Stage::Source::kLayer:
          states = run_layer_over(states, geometry_.stages[i - 1]);
          break;
        case net::Stage::Source::kCompressed:
          states = compress(window, network_.pool, geometry_.rate, stage.segment);
          window = at::Tensor();
          break;
        case net::Stage::Source::kAveraged:
          states = average_scales(upsampled, network_.droppath, options_);
          break;
      }
      if (!stage.feeds_layer() && stage.scale < geometry_.outputs.size()) {
        window = join(states, stage);
        const at::Tensor previous =
            stage.memory > 0 ? window.narrow(1, stage.memory - 1, 1) : at::Tensor();
        upsampled.push_back(upsample(states, previous, stage));
      }
    }
    return dropout(states, network_.dropout, options_, {DropoutSite::kFinal});
  }

  Memory next_memory() const { return memory_.next(); }

  // Mean over the layers; undefined when no layer learns to compress.
  at::Tensor reconstruction() const {
    return reconstruction_.defined() ? reconstruction_ / static_cast<double>(network_.layers())
                                     : at::Tensor();
  }

 private:
  at::Tensor run_layer_over(const at::Tensor& states, const net::Stage& input) {
    const net::AttentionReach reach{input.span, network_.attention_dilation};
    if (input.source != net::Stage::Source::kLayer) {  // the layers of a scale see the same keys
      const bool masks =
          network_.attention != net::Attention::kLinear && !machine::uses_kernels(states);
      hidden_ = masks ? kernels::hidden_keys(input.segment, input.window(), reach, states.device())
                      : at::Tensor();
    }
    const LayerContext context{network_, parameters_.layers[static_cast<std::size_t>(input.layer)],
                               options_, input.layer,
                               reach,    nullptr,
                               hidden_};
    if (rows_ == Rows::kStreams) {
      return run_stream_layer(context, states, input, memory_);
    }
    return geometry_.keeps_most_used() ? run_waiting_layer(context, states, input)
                                       : run_consecutive_layer(context, states, input);
  }

  // Shorter windows see the shorter distances: the end of the table.
  at::Tensor positions(std::int64_t window) const {
    return positions_.narrow(0, positions_.size(0) - window, window);
  }

  at::Tensor run_stream_layer(const LayerContext& context, const at::Tensor& states,
                              const net::Stage& input, MemoryWalk& memory) {
    const at::Tensor window = memory.join(states, input);
    if (input.compressed_memory > 0) {
      return run_compressive_layer(context, window, states, memory);
    }
    return run_layer(context, window, states, positions(window.size(1)));
  }

  // The compressed memory stands before `window`, whose oldest `segment` states leave it after this
  // step and enter the compressed memory.
  at::Tensor run_compressive_layer(LayerContext context, const at::Tensor& window,
                                   const at::Tensor& states, MemoryWalk& memory) {
    const std::int64_t segment = states.size(1), compressed_length = memory.current().size(1);
    at::Tensor usage;
    if (network_.pool == net::Pool::kMostUsed) {
      context.usage = &usage;
    }
    const at::Tensor all = at::cat({memory.current(), window}, 1);
    at::Tensor output = run_layer(context, all, states, positions(all.size(1)));
    if (usage.defined()) {
      usage = usage.narrow(1, compressed_length, segment);
    }
    const at::Tensor kept = options_.through_memory ? window : window.detach();
    const at::Tensor leaving = kept.narrow(1, 0, segment);
    const at::Tensor compressed = compress_memories(network_, context.parameters, leaving, usage);
    if (options_.training && compressed.requires_grad()) {
      const at::Tensor queries = window.narrow(1, window.size(1) - segment, segment);
      const at::Tensor loss = compression_loss(context, queries, leaving, compressed);
      reconstruction_ = reconstruction_.defined() ? reconstruction_ + loss : loss;
    }
    memory.pass_compressed(compressed);
    return output;
  }

  // What a step leaves in the compressed memory depends on its attention, so the next one waits.
  at::Tensor run_waiting_layer(const LayerContext& context, const at::Tensor& states,
                               const net::Stage& input) {
    Memory memory = memory_.of(input);
    std::vector<at::Tensor> outputs;
    for (std::int64_t step = 0; step < states.size(0); ++step) {
      forget_before(step, input, memory);
      MemoryWalk walk(memory);
      outputs.push_back(run_stream_layer(context, states.narrow(0, step, 1), input, walk));
      memory = walk.next();
    }
    for (const NamedTensor& state : memory.states) {
      memory_.pass(state.tensor);
    }
    return at::cat(outputs);
  }

  // The memories of one layer, the compressed one last, as the step of one row finds them.
  void forget_before(std::int64_t row, const net::Stage& input, Memory& memory) const {
    if (options_.ages.empty()) {
      return;
    }
    for (NamedTensor& state : memory.states) {
      const net::MemoryCover cover = &state == &memory.states.back()
                                         ? net::compressed_memory_cover(geometry_)
                                         : net::memory_cover(input);
      const std::vector<std::int64_t> age = {options_.ages[static_cast<std::size_t>(row)]};
      state.tensor = replace_forgotten(
          state.tensor, forgotten_states(cover, state.tensor.size(1), age, state.tensor.device()));
    }
  }

  // Every state's keys and values are made once, when it is in a segment.
  at::Tensor run_consecutive_layer(const LayerContext& context, const at::Tensor& states,
                                   const net::Stage& input) {
    const auto keys_values = [&](const at::Tensor& of) {
      return project_keys_values(context, attention_states(context, of));
    };
    // Keys and values of the memories of all steps, as the step of each finds them.
    const auto memories = [&](const at::Tensor& carry, const at::Tensor& entering,
                              const net::MemoryCover& cover) {
      const at::Tensor all = memories_before(keys_values(carry), entering);
      const at::Tensor mask = forgotten(cover, carry.size(1));
      if (!mask.defined()) {
        return all;
      }
      return replace_forgotten(all, mask, keys_values(at::zeros_like(carry.narrow(1, 0, 1))));
    };
    const at::Tensor normalized = attention_states(context, states);
    const at::Tensor own = project_keys_values(context, normalized);
    std::vector<at::Tensor> window;  // the oldest last
    window.push_back(own);
    at::Tensor leaving = states;  // of a Compressive Transformer: all states of the step's window
    if (input.memory > 0) {
      const at::Tensor carry = memory_.current();
      const net::MemoryCover cover = net::memory_cover(input);
      window.push_back(memories(carry, own.narrow(1, 0, input.shift), cover));
      if (input.compressed_memory > 0) {
        const at::Tensor stream = at::cat({carry.squeeze(0), states.flatten(0, 1)});
        leaving = stream.narrow(0, 0, states.size(0) * input.segment).view(states.sizes());
        leaving = forget_leaving(leaving, input);
      }
      memory_.pass(memory_after(carry, states.narrow(1, 0, input.shift)));
    }
    if (input.compressed_memory > 0) {
      const at::Tensor compressed = compress_memories(network_, context.parameters, leaving, {});
      const at::Tensor carry = memory_.current();
      window.push_back(
          memories(carry, keys_values(compressed), net::compressed_memory_cover(geometry_)));
      memory_.pass(memory_after(carry, compressed));
    }
    std::reverse(window.begin(), window.end());
    return run_layer(context, states, normalized, window, positions(input.window()));
  }

  // Which states of a memory of `length` each consecutive step has forgotten; undefined: none.
  at::Tensor forgotten(const net::MemoryCover& cover, std::int64_t length) const {
    return forgotten_states(cover, length, options_.ages, positions_.device());
  }

  // Of the states that leave the window of each step, those that came from its memory, which is
  // their first part.
  at::Tensor forget_leaving(const at::Tensor& leaving, const net::Stage& input) const {
    const at::Tensor mask = forgotten(net::memory_cover(input), input.memory);
    if (!mask.defined()) {
      return leaving;
    }
    const at::Tensor of_window = at::constant_pad_nd(mask, {0, input.segment}, 0);
    return replace_forgotten(leaving, of_window.narrow(1, 0, input.segment));
  }

  // The window of a scale's output.
  at::Tensor join(const at::Tensor& states, const net::Stage& output) {
    if (rows_ == Rows::kStreams || output.memory == 0) {
      return memory_.join(states, output);
    }
    const at::Tensor carry = memory_.current();
    const at::Tensor entering = states.narrow(1, 0, output.shift);
    memory_.pass(memory_after(carry, entering));
    const at::Tensor mask = forgotten(net::memory_cover(output), output.memory);
    return at::cat({replace_forgotten(memories_before(carry, entering), mask), states}, 1);
  }

  const net::Network& network_;
  const Parameters& parameters_;
  const net::Geometry& geometry_;
  MemoryWalk memory_;
  const StepOptions& options_;
  Rows rows_;
  at::Tensor positions_;
  at::Tensor reconstruction_;  // summed over the layers so far
  at::Tensor hidden_;          // hidden_keys() of a scale's layers
};

}  // namespace

Model::Model(const net::Network& network, const at::TensorOptions& options)
    : network_(network), options_(options) {
  check_network(network);
  parameters_ = make_parameters(network, options);
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const NamedTensor& parameter : parameters_.named) {
    count += parameter.tensor.numel();
  }
  return count;
}

void Model::initialise(std::uint64_t seed) { nn::initialise(parameters_, network_, seed); }

Memory Model::start_memory(const net::Geometry& geometry, std::int64_t batch) const {
  check_geometry(network_, geometry);
  Memory memory;
  for (const StageMemory& kept : memories_of(geometry)) {
    memory.states.push_back(
        {kept.name, at::zeros({batch, kept.length, network_.d_model}, options_)});
  }
  return memory;
}

at::Tensor Model::check_ids(const at::Tensor& ids, const char* what) const {
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0) {
    throw ConfigError(what, "expected a batch x segment tensor of int64");
  }
  // On an accelerator the look at the values would stall it; they came through the CPU.
  if (machine::uses_kernels(ids)) {
    const std::int64_t lowest = ids.min().item<std::int64_t>();
    const std::int64_t highest = ids.max().item<std::int64_t>();
    if (lowest < 0 || highest >= network_.vocab_size) {
      throw FormatError(what,
                        fmt::format("id {} is outside the vocabulary of {} entries",
                                    lowest < 0 ? lowest : highest, network_.vocab_size),
                        "use data that was encoded with the model's vocabulary");
    }
  }
  return ids.to(options_.device());
}

at::Tensor Model::embed(const at::Tensor& tokens) const {
  return nn::embed(network_, parameters_, check_ids(tokens, "tokens"));
}

at::Tensor Model::check_tokens(const net::Geometry& geometry, const at::Tensor& tokens) const {
  check_geometry(network_, geometry);
  const at::Tensor ids = check_ids(tokens, "tokens");
  if (ids.size(1) != geometry.lengths.segment) {
    throw ConfigError("tokens", fmt::format("expected segments of {} tokens, found {}",
                                            geometry.lengths.segment, ids.size(1)));
  }
  return ids;
}

at::Tensor Model::forward_stream(const net::Geometry& geometry, const at::Tensor& tokens,
                                 Memory& memory, const std::vector<std::int64_t>& ages) const {
  const at::NoGradGuard no_gradient;
  const at::Tensor ids = check_tokens(geometry, tokens);
  check_memory(memory, geometry, 1, network_.d_model);
  check_ages(network_, ages, ids.size(0));
  StepOptions evaluation;
  evaluation.ages = ages;
  Step run(network_, parameters_, geometry, memory, evaluation, options_, Rows::kConsecutive);
  const at::Tensor states = run.run(nn::embed(network_, parameters_, ids));
  memory = run.next_memory();
  return states;
}

at::Tensor Model::forward(const net::Geometry& geometry, const at::Tensor& tokens, Memory& memory,
                          const StepOptions& step, at::Tensor* reconstruction) const {
  const at::Tensor ids = check_tokens(geometry, tokens);
  return forward_embedded(geometry, nn::embed(network_, parameters_, ids), memory, step,
                          reconstruction);
}

at::Tensor Model::forward_embedded(const net::Geometry& geometry, const at::Tensor& embedded,
                                   Memory& memory, const StepOptions& step,
                                   at::Tensor* reconstruction) const {
  check_geometry(network_, geometry);
  check_embedded(embedded, geometry.lengths.segment, network_.d_model);
  check_memory(memory, geometry, embedded.size(0), network_.d_model);
  if (!step.age_tensor.defined()) {
    check_ages(network_, step.ages, embedded.size(0));
  }
  if (network_.reset_memory_at_documents) {
    memory = forget_other_documents(memory, geometry, step.ages, step.age_tensor);
  }
  Step run(network_, parameters_, geometry, memory, step, options_, Rows::kStreams);
  at::Tensor states = run.run(dropout(embedded, network_.dropout, step, {DropoutSite::kEmbedding}));
  memory = run.next_memory();
  if (reconstruction != nullptr) {
    *reconstruction = run.reconstruction();
  }
  return states;
}

at::Tensor Model::check_targets(const at::Tensor& states, const at::Tensor& targets) const {
  const at::Tensor ids = check_ids(targets, "targets");
  if (states.dim() != 3 || states.size(0) != ids.size(0) || states.size(1) != ids.size(1) ||
      states.size(2) != network_.d_model) {
    throw ConfigError("states", fmt::format("expected {} x {} x {} for these targets", ids.size(0),
                                            ids.size(1), network_.d_model));
  }
  return ids;
}

at::Tensor Model::losses(const at::Tensor& states, const at::Tensor& targets) const {
  const at::Tensor ids = check_targets(states, targets);
  return kernels::cross_entropy(states.flatten(0, 1), softmax_weights(network_, parameters_),
                                ids.flatten())
      .view(ids.sizes());
}

at::Tensor Model::loss(const at::Tensor& states, const at::Tensor& targets, double factor) const {
  const at::Tensor ids = check_targets(states, targets);
  return kernels::cross_entropy_sum(states.flatten(0, 1), softmax_weights(network_, parameters_),
                                    ids.flatten(), factor);
}

}  // namespace ql::nn
