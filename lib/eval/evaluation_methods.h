// The two ways to read a stream; evaluate() chooses. Both score every target once, as one reader of
// the whole stream would.
#pragma once

#include "eval/evaluate.h"
#include "nn/model_at_lengths.h"

namespace ql::eval {

// Goes step by step, with `options.batch` columns side by side (eval/columns.h).
Evaluation evaluate_columns(const nn::ModelAtLengths& model, const TokenSource& source,
                            const EvaluationOptions& options);

// Goes chunk by chunk, and through each chunk layer by layer (eval/stream_scorer.h).
Evaluation evaluate_layerwise(const nn::ModelAtLengths& model, const TokenSource& source,
                              const EvaluationOptions& options);

// Calls one of the two, as the options say, in this process.
Evaluation evaluate_alone(const nn::ModelAtLengths& model, const TokenSource& source,
                          const EvaluationOptions& options);

// Does the same with a part of the stream in each process of options.group.
Evaluation evaluate_shared(const nn::ModelAtLengths& model, const TokenSource& source,
                           const EvaluationOptions& options);

}  // namespace ql::eval
