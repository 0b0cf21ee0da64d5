#include "nn/model_at_lengths.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/projection.h"
#include "machine/device.h"
#include "nn/layers_internal.h"
#include "nn/step_internal.h"

namespace ql::nn {
namespace {

LengthTables make_tables(const Model& model, const net::Lengths& lengths) {
  const net::Network& network = model.network();
  LengthTables tables;
  tables.geometry = net::make_geometry(network, lengths);
  const bool masks = network.attention != net::Attention::kLinear &&
                     !machine::uses_kernels(model.parameters().front().tensor);
  std::int64_t longest = 0;
  for (const net::Stage& stage : tables.geometry.stages) {
    at::Tensor hidden;
    if (stage.feeds_layer()) {
      longest = std::max(longest, stage.window());
      // The layers of a scale see the same keys, unless the first reads finer states.
      const bool as_before =
          stage.source == net::Stage::Source::kLayer &&
          tables.geometry.stages[tables.hidden_keys.size() - 1].keys_per_state == 1;
      hidden = masks && as_before ? tables.hidden_keys.back()
               : masks            ? kernels::hidden_keys(stage.segment_keys(), stage.window(),
                                                         {stage.span, network.attention_dilation},
                                                         model.options().device())
                                  : at::Tensor();
    }
    tables.hidden_keys.push_back(hidden);
  }
  for (std::size_t scale = 0; scale <= network.scales.size(); ++scale) {
    at::Tensor& positions = tables.positions[network.width_of(scale)];
    if (positions.defined()) continue;
    // Other encodings read only the table's length.
    positions = network.encoding == net::Encoding::kTransformerXl
                    ? position_table(network.of_scale(scale), longest, model.options())
                    : at::empty({longest, 0}, model.options());
  }
  return tables;
}

// `needed`: every row must have an age; otherwise there may be none.
void check_ages(bool needed, const std::vector<std::int64_t>& ages, std::int64_t rows) {
  const std::int64_t expected = needed ? rows : 0;
  const auto found = static_cast<std::int64_t>(ages.size());
  if (found != expected ||
      std::any_of(ages.begin(), ages.end(), [](auto age) { return age < 0; })) {
    throw ConfigError("ages", fmt::format("expected {} of at least 0, found {}", expected, found),
                      "a network that resets its memory at documents, and no other, needs one for "
                      "every row");
  }
}

}  // namespace

ModelAtLengths::ModelAtLengths(const Model& model, const net::Lengths& lengths)
    : model_(model), tables_(make_tables(model, lengths)) {}

Memory ModelAtLengths::start_memory(std::int64_t batch) const {
  return zero_memory(geometry(), batch, model_.options());
}

at::Tensor ModelAtLengths::embed_segments(const at::Tensor& tokens) const {
  at::Tensor embedded = model_.embed(tokens);
  if (tokens.size(1) != geometry().lengths.segment) {
    throw ConfigError("tokens", fmt::format("expected segments of {} tokens, found {}",
                                            geometry().lengths.segment, tokens.size(1)));
  }
  return embedded;
}

at::Tensor ModelAtLengths::forward(const at::Tensor& tokens, Memory& memory,
                                   const StepOptions& step, at::Tensor* reconstruction) const {
  return forward_embedded(embed_segments(tokens), memory, step, reconstruction);
}

at::Tensor ModelAtLengths::forward_embedded(const at::Tensor& embedded, Memory& memory,
                                            const StepOptions& step,
                                            at::Tensor* reconstruction) const {
  const std::int64_t segment = geometry().lengths.segment, d_model = model_.network().d_model;
  if (!embedded.defined() || embedded.dim() != 3 || embedded.size(1) != segment ||
      embedded.size(2) != d_model) {
    throw ConfigError("embedded tokens",
                      fmt::format("expected batch x {} x {} numbers", segment, d_model));
  }
  check_memory(memory, geometry(), embedded.size(0));
  if (!step.age_tensor.defined()) {
    check_ages(model_.network().reset_memory_at_documents, step.ages, embedded.size(0));
  }
  Memory next = memory;
  forget_other_documents(next, geometry(), step);
  StreamsStep run(model_, tables_, step, next);
  at::Tensor states =
      run.run(dropout(embedded, model_.network().dropout, step, {DropoutSite::kEmbedding}));
  memory = std::move(next);
  if (reconstruction != nullptr) *reconstruction = run.reconstruction();
  return states;
}

at::Tensor ModelAtLengths::forward_stream(const at::Tensor& tokens, Memory& memory,
                                          const std::vector<std::int64_t>& ages, AttentionMap* map,
                                          const std::vector<Places>& shown) const {
  const at::NoGradGuard no_gradient;
  const at::Tensor embedded = embed_segments(tokens);
  check_memory(memory, geometry(), 1);
  check_ages(model_.network().reset_memory_at_documents || !ages.empty(), ages, tokens.size(0));
  StepOptions evaluation;
  evaluation.ages = ages;
  evaluation.attention_map = map;
  evaluation.shown = shown;
  Memory next = memory;
  at::Tensor states = ConsecutiveStep(model_, tables_, evaluation, next).run(embedded);
  memory = std::move(next);
  return states;
}

at::Tensor ModelAtLengths::forward_next(const at::Tensor& tokens, GrowingSegment& growing) const {
  const at::NoGradGuard no_gradient;
  const kernels::RowsApart apart;
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < tokens.size(1);) {
    if (growing.tokens_ == 0) forget_before(growing);
    const std::int64_t count =
        std::min(tokens.size(1) - first, geometry().lengths.segment - growing.tokens_);
    const at::Tensor embedded = model_.embed(tokens.narrow(1, first, count), growing.tokens_);
    parts.push_back(GrowingStep(model_, tables_, StepOptions(), growing, count).run(embedded));
    growing.tokens_ = (growing.tokens_ + count) % geometry().lengths.segment;
    growing.age_ += count;
    first += count;
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

void ModelAtLengths::forget_before(GrowingSegment& growing) const {
  if (!model_.network().reset_memory_at_documents) return;
  StepOptions step;
  step.ages.assign(static_cast<std::size_t>(growing.batch()), growing.age_);
  Memory memory = growing.memory();
  const std::vector<NamedTensor> before = memory.named();
  forget_other_documents(memory, geometry(), step);
  const std::vector<NamedTensor> after = memory.named();
  const bool same = std::equal(
      before.begin(), before.end(), after.begin(),
      [](const auto& one, const auto& other) { return one.tensor.is_same(other.tensor); });
  if (same) return;
  growing = GrowingSegment(geometry(), memory, growing.batch(), model_.options(), growing.age_);
}

}  // namespace ql::nn
