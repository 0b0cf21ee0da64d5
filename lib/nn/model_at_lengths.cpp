// Implements the forward functions of ModelAtLengths.

#include "nn/model_at_lengths.h"

#include <ATen/core/grad_mode.h>

#include "kernels/attention.h"
#include "kernels/product.h"
#include "nn/decode.h"
#include "nn/dropout.h"
#include "nn/encoding.h"
#include "nn/step.h"

namespace ql::nn {

static LengthTables make_tables(const Model& model, const net::Lengths& lengths) {
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
      // The layers of a scale share one mask, unless the first layer reads finer states.
      const bool as_before =
          stage.source == net::Stage::Source::kLayer &&
          tables.geometry.stages[tables.attention_mask.size() - 1].keys_per_state == 1;
      hidden = masks && as_before ? tables.attention_mask.back()
               : masks            ? kernels::attention_mask(stage.segment_keys(), stage.window(),
                                                            {stage.span, network.attention_dilation},
                                                            model.options().device())
                                  : at::Tensor();
    }
    tables.attention_mask.push_back(hidden);
  }
  for (std::size_t scale = 0; scale <= network.scales.size(); ++scale) {
    at::Tensor& positions = tables.positions[network.width_of(scale)];
    if (positions.defined()) continue;
    positions = position_table(network.of_scale(scale), longest, model.options());
  }
  return tables;
}

// If offsets are `needed`, throws ConfigError unless every row has one that is at least 0. If they
// are not, throws ConfigError if there are any.
static void check_document_offsets(bool needed, const std::vector<std::int64_t>& document_offsets,
                                   std::int64_t rows) {
  const std::int64_t expected = needed ? rows : 0;
  const auto found = static_cast<std::int64_t>(document_offsets.size());
  if (found != expected || std::any_of(document_offsets.begin(), document_offsets.end(),
                                       [](auto offset) { return offset < 0; })) {
    throw ConfigError(
        "document_offsets",
        fmt::format("expected {} numbers of at least 0, found [{}]", expected,
                    fmt::join(document_offsets, ", ")),
        "give an offset for every row if the network resets its memory at documents, otherwise "
        "none");
  }
}

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
                      fmt::format("expected batch x {} x {} elements", segment, d_model));
  }
  check_memory(memory, geometry(), embedded.size(0));
  if (!step.document_offset_tensor.defined()) {
    check_document_offsets(model_.network().reset_memory_at_documents, step.document_offsets,
                           embedded.size(0));
  }
  Memory next = memory;
  forget_other_documents(next, geometry(), step);
  const StepContext context(model_, tables_, step);
  StreamStep streams(context, next);
  at::Tensor states =
      run_step(context, streams,
               dropout(embedded, model_.network().dropout, step, {DropoutSite::kEmbedding}));
  memory = std::move(next);
  if (reconstruction != nullptr) *reconstruction = streams.reconstruction();
  return states;
}

at::Tensor ModelAtLengths::forward_stream(const at::Tensor& tokens, Memory& memory,
                                          const std::vector<std::int64_t>& document_offsets,
                                          AttentionMap* map,
                                          const std::vector<Places>& shown) const {
  const at::NoGradGuard no_gradient;
  const at::Tensor embedded = embed_segments(tokens);
  check_memory(memory, geometry(), 1);
  check_document_offsets(model_.network().reset_memory_at_documents || !document_offsets.empty(),
                         document_offsets, tokens.size(0));
  StepOptions evaluation;
  evaluation.document_offsets = document_offsets;
  evaluation.attention_map = map;
  evaluation.shown = shown;
  Memory next = memory;
  const StepContext context(model_, tables_, evaluation);
  LayerwiseStep segments(context, next);
  at::Tensor states = run_step(context, segments, embedded);
  memory = std::move(next);
  return states;
}

at::Tensor ModelAtLengths::forward_next(const at::Tensor& tokens, DecodeState& decoding,
                                        bool batch_invariant) const {
  const at::NoGradGuard no_gradient;
  if (tokens.dim() != 2 || tokens.size(0) != decoding.batch() || tokens.size(1) < 1) {
    throw ConfigError("tokens", fmt::format("expected {} x 1 or more for these streams, found {}",
                                            decoding.batch(), fmt::join(tokens.sizes(), " x ")));
  }
  std::optional<kernels::BatchInvariant> apart;
  if (batch_invariant) apart.emplace();
  const StepOptions options;
  const StepContext context(model_, tables_, options);
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < tokens.size(1);) {
    if (decoding.tokens_ == 0) forget_before(decoding);
    const std::int64_t count =
        std::min(tokens.size(1) - first, geometry().lengths.segment - decoding.tokens_);
    const at::Tensor embedded = model_.embed(tokens.narrow(1, first, count), decoding.tokens_);
    parts.push_back(decode_tokens(context, embedded, decoding));
    decoding.tokens_ = (decoding.tokens_ + count) % geometry().lengths.segment;
    decoding.document_offset_ += count;
    first += count;
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

void ModelAtLengths::forget_before(DecodeState& decoding) const {
  if (!model_.network().reset_memory_at_documents) return;
  StepOptions step;
  step.document_offsets.assign(static_cast<std::size_t>(decoding.batch()),
                               decoding.document_offset_);
  Memory memory = decoding.memory();
  const std::vector<NamedTensor> before = memory.named();
  forget_other_documents(memory, geometry(), step);
  const std::vector<NamedTensor> after = memory.named();
  const bool same = std::equal(
      before.begin(), before.end(), after.begin(),
      [](const auto& one, const auto& other) { return one.tensor.is_same(other.tensor); });
  if (same) return;
  decoding = DecodeState(geometry(), memory, decoding.batch(), model_.options(),
                         decoding.document_offset_);
}

}  // namespace ql::nn
