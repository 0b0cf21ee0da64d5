#include "eval/evaluate.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/resources.h"
#include "eval/chunk_size.h"
#include "eval/evaluation_methods.h"
#include "eval/stream_scorer.h"
#include "eval/token_check.h"
#include "machine/device.h"

namespace ql::eval {

TokenSource source_of(shard::JoinedData& reader) {
  return {reader.name(), reader.tokens(),
          [&reader](std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor) {
            reader.read(begin, count, out, cursor);
          },
          [&reader]() -> decltype(auto) { return reader.document_starts(); },
          [&reader] { return reader.frame_bytes(); }};
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

namespace {

// Returns the columns that the memory of this machine has room for, and says so where they are
// fewer than the options ask for.
std::int64_t columns_with_room(const nn::ModelAtLengths& model, const TokenSource& source,
                               const EvaluationOptions& options) {
  const net::Network& network = model.model().network();
  const std::int64_t processes = options.group != nullptr ? options.group->local_size() : 1;
  const std::int64_t segment = model.geometry().lengths.segment;
  const std::int64_t segments = (source.tokens - 2) / segment / processes + 1;
  const std::int64_t columns = std::min(options.batch, segments);
  const std::int64_t known = available_bytes() / processes;
  if (known == 0 || !machine::uses_kernels(model.model().parameters().front().tensor)) {
    return options.batch;
  }
  const int threads = at::get_num_threads();
  const std::int64_t of_cursor = source.cursor_bytes ? source.cursor_bytes() : 0;
  // A tenth is left for the system's cache of files, as in a training.
  const std::int64_t fitting =
      columns_that_fit(network, model.geometry(), columns, threads, of_cursor, known - known / 10);
  const std::int64_t needed = columns_bytes(network, model.geometry(), columns, threads, of_cursor);
  if (fitting < columns) {
    log_info("{} columns are read side by side: {} would take about {}, and {} are available",
             with_thousands(fitting), with_thousands(columns), human_bytes(needed),
             human_bytes(known));
    return fitting;
  }
  if (needed > known - known / 10) {
    log_warning("one column needs about {}, and {} are available: use shorter lengths",
                human_bytes(needed), human_bytes(known));
  }
  return options.batch;
}

}  // namespace

Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options) {
  const nn::ModelAtLengths at_lengths(model, options.lengths);
  check_length(source);
  const auto start = std::chrono::steady_clock::now();
  EvaluationOptions fitting = options;
  if (options.batch > 0) fitting.batch = columns_with_room(at_lengths, source, options);
  Evaluation result = options.group != nullptr ? evaluate_shared(at_lengths, source, fitting)
                                               : evaluate_alone(at_lengths, source, fitting);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds = elapsed.count();
  return result;
}

}  // namespace ql::eval
