#include "eval/evaluate.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "eval/evaluation_methods.h"
#include "eval/stream_scorer.h"
#include "eval/token_check.h"

namespace ql::eval {

TokenSource source_of(shard::JoinedData& reader) {
  return {reader.name(), reader.tokens(),
          [&reader](std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor) {
            reader.read(begin, count, out, cursor);
          },
          [&reader]() -> decltype(auto) { return reader.document_starts(); }};
}

bool has_memory(const net::Geometry& geometry) {
  return std::any_of(geometry.stages.begin(), geometry.stages.end(), [](const net::Stage& stage) {
    return stage.memory + stage.compressed_memory > 0;
  });
}

void check_stride(const net::Geometry& geometry, std::int64_t stride) {
  if (stride == 0) return;
  if (stride < 0 || stride > geometry.lengths.segment) {
    throw ConfigError("stride", fmt::format("expected 1 to {}, the segment, found {}",
                                            geometry.lengths.segment, stride));
  }
  if (has_memory(geometry)) {
    throw ConfigError("stride",
                      "only the windows of a network without memory slide; leave the stride out");
  }
}

Evaluation evaluate_layerwise(const nn::ModelAtLengths& model, const TokenSource& source,
                              const EvaluationOptions& options) {
  StreamScorer scorer(model, source.name, options);
  if (model.model().network().reset_memory_at_documents) {
    for (const std::int64_t start : source.document_starts()) scorer.put_document(start);
  }
  std::vector<std::int64_t> ids(
      static_cast<std::size_t>(std::min(scorer.chunk_tokens(), source.tokens)));
  for (std::int64_t begin = 0; begin < source.tokens; begin += scorer.chunk_tokens()) {
    const std::int64_t count = std::min(scorer.chunk_tokens(), source.tokens - begin);
    source.read(begin, count, ids.data(), 0);
    scorer.put(ids.data(), count);
  }
  scorer.finish();
  return scorer.evaluation();
}

Evaluation evaluate_alone(const nn::ModelAtLengths& model, const TokenSource& source,
                          const EvaluationOptions& options) {
  return options.batch > 0 ? evaluate_columns(model, source, options)
                           : evaluate_layerwise(model, source, options);
}

Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options) {
  const nn::ModelAtLengths at_lengths(model, options.lengths);
  check_length(source);
  const auto start = std::chrono::steady_clock::now();
  Evaluation result = options.group != nullptr ? evaluate_shared(at_lengths, source, options)
                                               : evaluate_alone(at_lengths, source, options);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds = elapsed.count();
  return result;
}

}  // namespace ql::eval
