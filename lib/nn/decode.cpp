// Keeps states, keys and values in caches, and computes the next tokens of segments that are being
// decoded with them.

#include "nn/decode.h"

#include "base/process.h"
#include "nn/compression.h"
#include "nn/encoding.h"
#include "nn/step.h"

namespace ql::nn {

// A KvCache has room for at least this many states. With less room, shift() would often reach the
// buffer's end and copy the memory back to the beginning.
constexpr std::int64_t kLeastRoom = 64;

KvCache::KvCache(const at::Tensor& memory, std::int64_t segment)
    : length_(memory.size(1)), segment_(segment) {
  std::vector<std::int64_t> shape = memory.sizes().vec();
  shape[1] = std::max(2 * (length_ + segment_), kLeastRoom);
  buffer_ = at::empty(shape, memory.options());
  buffer_.narrow(1, 0, length_).copy_(memory);
}

at::Tensor KvCache::memory() const { return window().narrow(1, 0, length_); }

at::Tensor KvCache::window() const {
  const std::vector<at::Tensor> all = parts();
  return all.size() == 1 ? all.front() : at::cat(all, 1);
}

std::vector<at::Tensor> KvCache::parts() const {
  if (!beginning_.defined()) return {buffer_.narrow(1, begin_, length_ + filled_)};
  return own_.defined() ? std::vector{beginning_, own_} : std::vector{beginning_};
}

std::int64_t KvCache::bytes() const {
  const at::Tensor& own = beginning_.defined() ? own_ : buffer_;
  return own.defined() ? static_cast<std::int64_t>(own.nbytes()) : 0;
}

void KvCache::put(const at::Tensor& states) {
  const std::int64_t count = states.size(1);
  if (filled_ + count > segment_) throw std::logic_error("more states than a segment has");
  if (beginning_.defined()) {
    own_ = own_.defined() ? at::cat({own_, states}, 1) : states;
  } else {
    buffer_.narrow(1, begin_ + length_ + filled_, count).copy_(states);
  }
  filled_ += count;
}

void KvCache::shift(std::int64_t shift) {
  if (beginning_.defined()) {
    *this = KvCache(window().narrow(1, shift, length_), segment_);
    return;
  }
  begin_ += shift;
  filled_ = 0;
  if (begin_ + length_ + segment_ <= buffer_.size(1)) return;
  // The buffer has room for two windows, so the new place of the memory overlaps neither its old
  // place nor the window of this segment, which a caller may hold.
  buffer_.narrow(1, 0, length_).copy_(memory());
  begin_ = 0;
}

KvCache KvCache::streams(const at::Tensor& indexes) const {
  const at::Tensor chosen = window().index_select(0, indexes);
  KvCache cache(chosen.narrow(1, 0, length_), segment_);
  cache.put(chosen.narrow(1, length_, filled_));
  return cache;
}

// Returns `count` rows that are the only one of `tensor`, without copying it.
static at::Tensor repeated(const at::Tensor& tensor, std::int64_t count) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[0] = count;
  return tensor.expand(shape);
}

KvCache KvCache::shared(std::int64_t count) const {
  KvCache cache = *this;
  cache.buffer_ = cache.own_ = at::Tensor();
  cache.beginning_ = repeated(window(), count);
  return cache;
}

KvCache KvCache::of_memory(const std::function<at::Tensor(const at::Tensor&)>& map,
                           std::int64_t segment) const {
  if (!beginning_.defined()) return {map(memory()), segment};
  const KvCache one(map(beginning_.narrow(0, 0, 1).narrow(1, 0, length_)), segment);
  return one.shared(beginning_.size(0));
}

DecodeState::DecodeState(const net::Geometry& geometry, const Memory& memory, std::int64_t batch,
                         const at::TensorOptions& options, std::int64_t offset)
    : document_offset_(offset) {
  for (std::size_t i = 0; i < geometry.stages.size(); ++i) {
    const net::Stage& stage = geometry.stages[i];
    const StageMemory& of_stage = memory.stages[i];
    const at::Tensor states =
        of_stage.states.defined() ? of_stage.states : at::empty({batch, 0, stage.width}, options);
    stages_.push_back({KvCache(states, stage.segment), {}, of_stage.compressed, {}, {}, {}});
  }
}

std::int64_t DecodeState::batch() const { return stages_.front().states.parts().front().size(0); }

DecodeState DecodeState::copied(const std::function<KvCache(const KvCache&)>& cache,
                                const std::function<at::Tensor(const at::Tensor&)>& rows) const {
  DecodeState copy;
  copy.tokens_ = tokens_;
  copy.document_offset_ = document_offset_;
  const auto rows_of = [&](const at::Tensor& tensor) {
    return tensor.defined() ? rows(tensor) : tensor;
  };
  for (const DecodeStage& stage : stages_) {
    std::optional<KvCache> keys_values;
    if (stage.keys_values) keys_values = cache(*stage.keys_values);
    copy.stages_.push_back({cache(stage.states), std::move(keys_values), rows_of(stage.compressed),
                            rows_of(stage.compressed_keys_values), rows_of(stage.usage),
                            stage.positions});
  }
  return copy;
}

DecodeState DecodeState::streams(const std::vector<std::int64_t>& indexes) const {
  const at::Tensor chosen = at::tensor(indexes).to(stages_.front().states.parts().front().device());
  return copied([&](const KvCache& cache) { return cache.streams(chosen); },
                [&](const at::Tensor& tensor) { return tensor.index_select(0, chosen); });
}

DecodeState DecodeState::shared(std::int64_t count) const {
  DecodeState all = copied([&](const KvCache& cache) { return cache.shared(count); },
                           [&](const at::Tensor& tensor) { return repeated(tensor, count); });
  for (DecodeStage& stage : all.stages_) {
    // A step adds to the usage.
    if (stage.usage.defined()) stage.usage = stage.usage.clone(at::MemoryFormat::Contiguous);
  }
  return all;
}

std::int64_t DecodeState::bytes_per_stream() const {
  std::int64_t bytes = 0;
  for (const DecodeStage& stage : stages_) {
    // Keys and values may not exist yet. A key or a value is about as wide as a state.
    bytes += stage.states.bytes() +
             (stage.keys_values ? stage.keys_values->bytes() : 2 * stage.states.bytes());
    for (const at::Tensor& tensor : {stage.compressed, stage.compressed_keys_values}) {
      if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  return bytes / batch();
}

Memory DecodeState::memory() const {
  if (tokens_ != 0) throw std::logic_error("a segment has begun and is not complete");
  Memory memory;
  for (const DecodeStage& stage : stages_) {
    const at::Tensor states = stage.states.memory();
    memory.stages.push_back({states.size(1) > 0 ? states : at::Tensor(), stage.compressed});
  }
  return memory;
}

// The rows are streams that get some tokens of the current segment.
class DecodeStep final : public StepKind {
 public:
  // The step adds the states of `tokens` tokens to `decoding`.
  DecodeStep(const StepContext& step, DecodeState& decoding, std::int64_t tokens)
      : StepKind(step), decoding_(decoding), tokens_(tokens) {}

  at::Tensor layer(const LayerContext& context, const net::Stage& input, const at::Tensor& states,
                   const at::Tensor& finer) override;
  at::Tensor window_of(const net::Stage& output, const at::Tensor& states) override;
  at::Tensor new_groups(const net::Stage& stage, const at::Tensor& window) override;
  at::Tensor states_of_tokens(const net::Stage& output, const at::Tensor& states,
                              const at::Tensor& window) override;

 private:
  DecodeStage& decoding_of(const net::Stage& stage) { return decoding_.stages_[stage.index]; }
  // Returns the layer's position_scores for the `keys` that the window has so far.
  at::Tensor positions_so_far(const LayerContext& context, const net::Stage& input,
                              std::int64_t keys);
  // Turns the segment of the layer's input into memory.
  void end_segment(const LayerContext& context, const net::Stage& input);

  DecodeState& decoding_;
  std::int64_t tokens_;
};

at::Tensor DecodeStep::layer(const LayerContext& context, const net::Stage& input,
                             const at::Tensor& states, const at::Tensor& finer) {
  const std::int64_t count = states.size(1);
  if (count == 0) return states;
  check_for_stop();  // a layer takes minutes for a prompt that fills a long segment
  DecodeStage& decoding = decoding_of(input);
  const auto keys_values = [&](const at::Tensor& of) {
    return project_keys_values(context, attention_states(context, of));
  };
  if (!decoding.keys_values) {
    decoding.keys_values = decoding.states.of_memory(keys_values, input.segment_keys());
  }
  const at::Tensor normalized = attention_states(context, states);
  decoding.keys_values->put(finer.defined() ? keys_values(finer)
                                            : project_keys_values(context, normalized));
  decoding.states.put(states);

  std::vector<at::Tensor> parts;
  if (input.compressed_memory > 0) {
    at::Tensor& compressed = decoding.compressed_keys_values;
    if (!compressed.defined()) compressed = keys_values(decoding.compressed);
    parts.push_back(compressed);
  }
  std::int64_t keys = input.compressed_memory;
  for (const at::Tensor& part : decoding.keys_values->parts()) {
    parts.push_back(part);
    keys += part.size(1);
  }
  LayerContext so_far = context;
  so_far.hidden = at::Tensor();
  so_far.position_scores = positions_so_far(context, input, keys);
  at::Tensor usage;
  if (step_.geometry().keeps_most_used()) so_far.usage = &usage;
  at::Tensor output = run_layer_with_keys(so_far, states, normalized, parts);
  if (usage.defined()) {
    if (!decoding.usage.defined()) {
      decoding.usage = at::zeros({usage.size(0), input.window()}, usage.options());
    }
    decoding.usage.narrow(1, 0, keys).add_(usage, static_cast<double>(count));
  }
  if (decoding.states.filled() == input.segment) end_segment(context, input);
  return output;
}

at::Tensor DecodeStep::positions_so_far(const LayerContext& context, const net::Stage& input,
                                        std::int64_t keys) {
  at::Tensor& all = decoding_of(input).positions;
  if (!all.defined()) {
    all = position_scores(context.network, context.parameters.attention, context.position_table);
  }
  if (!all.defined()) return all;
  // Softmax attention uses the distance between key and query. Linear attention uses the distances
  // of keys and queries from the end of the complete window.
  const bool linear = context.network.attention == net::Attention::kLinear;
  return all.narrow(0, linear ? 0 : all.size(0) - keys, keys);
}

void DecodeStep::end_segment(const LayerContext& context, const net::Stage& input) {
  DecodeStage& decoding = decoding_of(input);
  if (input.compressed_memory > 0) {
    const at::Tensor leaving = decoding.states.window().narrow(1, 0, input.segment);
    const at::Tensor usage = decoding.usage.defined()
                                 ? decoding.usage.narrow(1, input.compressed_memory, input.segment)
                                 : decoding.usage;
    const at::Tensor compressed =
        compress_memories(context.network, context.parameters, leaving, usage);
    decoding.compressed = newest_states(decoding.compressed, compressed);
    decoding.compressed_keys_values =
        newest_states(decoding.compressed_keys_values,
                      project_keys_values(context, attention_states(context, compressed)));
    decoding.usage = at::Tensor();
  }
  decoding.states.shift(input.new_states);
  if (input.keys_per_state == 1) {
    decoding.keys_values->shift(input.new_states);
  } else {
    // The cached keys and values come from the states before pooling. In a memory they come from
    // the pooled states, so layer() makes a new cache.
    decoding.keys_values.reset();
  }
}

at::Tensor DecodeStep::window_of(const net::Stage& output, const at::Tensor& states) {
  KvCache& cache = decoding_of(output).states;
  cache.put(states);
  at::Tensor window = cache.window();
  if (cache.filled() == output.segment) cache.shift(output.new_states);
  return window;
}

at::Tensor DecodeStep::new_groups(const net::Stage& stage, const at::Tensor& window) {
  const net::Stage& finer = step_.geometry().stages[stage.index - 1];
  const std::int64_t rate = step_.geometry().rate, whole = finer.window();
  // Each group of `rate` states in the finer window is pooled into one state. The last group ends
  // at the end of the complete window. `missing` groups do not have all of their states yet.
  const std::int64_t missing = (whole - window.size(1) + rate - 1) / rate;
  const std::int64_t before = decoding_of(stage).states.filled();
  const std::int64_t count = stage.segment - missing - before;
  if (count <= 0) return window.narrow(1, 0, 0);
  return window.narrow(1, whole - (stage.segment - before) * rate, count * rate);
}

at::Tensor DecodeStep::states_of_tokens(const net::Stage& output, const at::Tensor& /*states*/,
                                        const at::Tensor& window) {
  // With the stride g, (p + 1) / g new states are complete at token p of the segment. The token
  // takes the last of them, or, if there is none, the state before the new states. If the stage
  // does not keep that state, the token takes zeros.
  const bool has_older = output.memory + output.segment > output.new_states;
  const at::Tensor all =
      has_older
          ? window
          : at::cat({at::zeros({window.size(0), 1, window.size(2)}, window.options()), window}, 1);
  const std::int64_t older = has_older ? output.memory + output.segment - output.new_states : 1;
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < tokens_; ++i) {
    places.push_back(older - 1 + (decoding_.tokens_ + i + 1) / output.stride);
  }
  const at::Tensor index = at::tensor(places, at::TensorOptions(at::kLong)).to(window.device());
  return step_.narrow(all.index_select(1, index), output.scale);
}

at::Tensor decode_tokens(const StepContext& step, const at::Tensor& embedded,
                         DecodeState& decoding) {
  DecodeStep kind(step, decoding, embedded.size(1));
  return run_step(step, kind, embedded);
}

}  // namespace ql::nn
