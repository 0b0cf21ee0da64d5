// Computes the exact perplexity: every target is scored once, in one unbroken stream. There are two
// ways.
//
// Layer by layer: a chunk of the stream goes through the first layer, then through the second, and
// so on, with its segments as a batch and memories carried from chunk to chunk. Every state is
// computed once.
//
// Step by step: the stream is cut into `batch` columns that are read side by side (eval/columns.h).
// Each column first reads, and does not score, as many tokens before its start as the network's
// exact context length reaches back, on segment boundaries of the stream.
//
// Both give the losses of reading the whole stream with batch 1, but for the order of
// floating-point sums.
#pragma once

#include <cstdint>
#include <optional>

#include "eval/evaluation.h"
#include "eval/token_source.h"
#include "machine/process_group.h"
#include "net/network.h"
#include "nn/model.h"
#include "shard/token_reader.h"

namespace ql::eval {

struct EvaluationOptions {
  net::Lengths lengths;
  std::int64_t batch = 0;  // 0: layer by layer; else step by step, at most this many columns
  std::int64_t chunk = 0;  // tokens that go through a layer at once; 0: by the memory there is
  std::optional<shard::TokenId> unknown;  // the vocabulary's <unk>
  LossSink sink;
  TargetProgress progress;
  // Targets before this position are read but not scored.
  std::int64_t first_target = 0;
  // The processes of a group share the work: each reads a part of the stream, as one of the columns
  // above. All of them return the same evaluation. The sink gets only the part of its own process.
  machine::ProcessGroup* group = nullptr;
};

// The tokens of a packed folder; `reader` must outlive the result.
TokenSource source_of(shard::TokenReader& reader);

// Throws Error for a stream of fewer than two tokens and for ids outside the model's vocabulary,
// ConfigError for lengths that do not fit the network, Interrupted when a signal asks to stop.
Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options);

}  // namespace ql::eval
