// Exact perplexity: every target scored once, in one unbroken stream.
//
// The stream is cut into `batch` columns that are read side by side (eval/columns.h). Each column
// first reads, and does not score, as many tokens before its start as the network's exact context
// length reaches back, on segment boundaries of the stream. The losses are therefore those of
// reading the whole stream with batch 1. What a batch size changes is the order of floating-point
// sums, nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "net/network.h"
#include "nn/model.h"
#include "shard/token_reader.h"

namespace ql::eval {

struct EvaluationOptions {
  net::Lengths lengths;
  std::int64_t batch = 0;  // columns at most; 0: chosen from the stream's and the context's length
  // Called for every scored target: position of the first target token in the stream, and losses in
  // nats of `count` targets from there on. Calls for one column come in order; columns interleave.
  std::function<void(std::int64_t position, const double* losses, std::int64_t count)> sink;
  std::function<void(std::int64_t targets_done)> progress;
};

struct Evaluation {
  std::int64_t targets = 0;  // stream length - 1: the first token has nothing before it
  double nll = 0;            // sum in nats
  double squares = 0;        // sum of squared losses
  std::int64_t batch = 0;    // columns used
  std::int64_t warm_up = 0;  // tokens read twice: not scored at column starts, all columns together
  double seconds = 0;
  double mean() const;        // nll / targets
  double perplexity() const;  // exp(mean)
  // Standard error of mean(), taking the losses as independent; NaN below two targets.
  double standard_error() const;
};

// Tokens 0 .. tokens-1 of some store.
struct TokenSource {
  std::string name;  // for messages
  std::int64_t tokens = 0;
  // As TokenReader::read: `cursor` is the column.
  std::function<void(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor)>
      read;
};
// `reader` must outlive the result.
TokenSource source_of(shard::TokenReader& reader);

// Throws Error for a stream of fewer than two tokens and for ids outside the model's vocabulary,
// ConfigError for lengths that do not fit the network, Interrupted when a signal asks to stop.
Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options);

}  // namespace ql::eval
