#include "eval/evaluate.h"

#include <chrono>

#include "eval/evaluation_methods.h"
#include "eval/token_check.h"
#include "net/geometry.h"

namespace ql::eval {

TokenSource source_of(shard::TokenReader& reader) {
  return {reader.name(), reader.tokens(),
          [&reader](std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor) {
            reader.read(begin, count, out, cursor);
          },
          [&reader]() -> decltype(auto) { return reader.document_starts(); }};
}

Evaluation evaluate_alone(const nn::Model& model, const TokenSource& source,
                          const net::Geometry& geometry, const EvaluationOptions& options) {
  return options.batch > 0 ? evaluate_columns(model, source, geometry, options)
                           : evaluate_layerwise(model, source, options);
}

Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options) {
  const net::Geometry geometry = net::make_geometry(model.network(), options.lengths);
  check_length(source);
  const auto start = std::chrono::steady_clock::now();
  Evaluation result = options.group != nullptr ? evaluate_shared(model, source, geometry, options)
                                               : evaluate_alone(model, source, geometry, options);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds = elapsed.count();
  return result;
}

}  // namespace ql::eval
