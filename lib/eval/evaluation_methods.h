// The two ways to read a stream; evaluate() chooses. Both score every target once, as one reader of
// the whole stream would.
#pragma once

#include "eval/evaluate.h"
#include "net/geometry.h"

namespace ql::eval {

// Step by step, `options.batch` columns side by side (eval/columns.h).
Evaluation evaluate_columns(const nn::Model& model, const TokenSource& source,
                            const net::Geometry& geometry, const EvaluationOptions& options);

// Chunk by chunk, each layer by layer (nn/consecutive_memories_internal.h); memories pass from
// chunk to chunk.
Evaluation evaluate_layerwise(const nn::Model& model, const TokenSource& source,
                              const EvaluationOptions& options);

// One of the two, as the options say, in this process.
Evaluation evaluate_alone(const nn::Model& model, const TokenSource& source,
                          const net::Geometry& geometry, const EvaluationOptions& options);

// The same, a part of the stream in each process of options.group.
Evaluation evaluate_shared(const nn::Model& model, const TokenSource& source,
                           const net::Geometry& geometry, const EvaluationOptions& options);

}  // namespace ql::eval
