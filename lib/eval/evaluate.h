// Exact perplexity: every target scored once, in one unbroken stream.
//
// The stream is cut into `batch` columns that are read side by side (eval/columns.h). Each column
// first reads, and does not score, as many tokens before its start as the network's exact context
// length reaches back, on segment boundaries of the stream. The losses are therefore those of
// reading the whole stream with batch 1. What a batch size changes is the order of floating-point
// sums, nothing else.
#pragma once

#include <cstdint>

#include "eval/evaluation.h"
#include "eval/token_source.h"
#include "net/network.h"
#include "nn/model.h"
#include "shard/token_reader.h"

namespace ql::eval {

struct EvaluationOptions {
  net::Lengths lengths;
  std::int64_t batch = 0;  // columns at most; 0: chosen from the stream's and the context's length
  LossSink sink;
  TargetProgress progress;
};

// The tokens of a packed folder; `reader` must outlive the result.
TokenSource source_of(shard::TokenReader& reader);

// Throws Error for a stream of fewer than two tokens and for ids outside the model's vocabulary,
// ConfigError for lengths that do not fit the network, Interrupted when a signal asks to stop.
Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options);

}  // namespace ql::eval
