// Exact perplexity: every target scored once, in one unbroken stream.
//
// The stream is cut into `batch` columns that are read side by side. Each column first reads, and
// does not score, as many tokens before its start as the network's exact context length reaches
// back (lib/net/context.h), on segment boundaries of the stream. The losses are therefore those of
// reading the whole stream with batch 1, at the speed of a batch. (What a batch size changes is the
// order of floating-point sums, nothing else.)
#pragma once

#include <cstdint>
#include <functional>

#include "net/network.h"
#include "nn/model.h"
#include "shard/token_reader.h"

namespace ql::eval {

struct EvaluationOptions {
  net::Lengths lengths;
  std::int64_t batch = 0;  // columns; 0: chosen from the stream's and the context's length
  // Called for every scored target: position of the target token in the stream, losses in nats.
  // Runs of one column come in order; columns interleave.
  std::function<void(std::int64_t position, const float* losses, std::int64_t count)> sink;
  std::function<void(std::int64_t targets_done)> progress;
};

struct Evaluation {
  std::int64_t targets = 0;  // stream length - 1: the first token has nothing before it
  double nll = 0;            // sum in nats
  double squares = 0;        // sum of squared losses: for the standard error
  std::int64_t batch = 0;    // columns used
  std::int64_t warm_up = 0;  // tokens read twice: not scored at column starts, all columns together
  double seconds = 0;
  double perplexity() const;  // exp(nll / targets)
};

// Tokens [begin, end) of some store.
struct TokenSource {
  std::int64_t tokens = 0;
  // As TokenReader::read: `cursor` is the column.
  std::function<void(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor)>
      read;
};
TokenSource source_of(shard::TokenReader& reader);

// Runs without gradient. Throws Error for a stream of fewer than two tokens, and for ids outside
// the model's vocabulary.
Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options);

}  // namespace ql::eval
