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
//
// A network without memory forgets at the end of every segment. With a stride of N its segments
// are windows instead: each begins N tokens after the one before and scores its newest N targets,
// layer by layer, so that each of them has at least n_s - N tokens before it in its window.
// (Al-Rfou et al. 2018 have N = 1.) The first window scores all its targets.
#pragma once

#include <cstdint>
#include <optional>

#include "eval/evaluation.h"
#include "eval/token_source.h"
#include "machine/process_group.h"
#include "net/geometry.h"
#include "nn/attention_map.h"
#include "nn/model.h"
#include "shard/joined_data.h"

namespace ql::eval {

// Says how a stream is read.
struct Reading {
  std::int64_t batch = 0;   // 0: layer by layer; else step by step, at most this many columns
  std::int64_t chunk = 0;   // tokens that go through a layer at once; 0: by the memory there is
  std::int64_t stride = 0;  // targets that a window scores, see above; 0: all of its segment
  // Tokens after which memory is emptied and a new segment begins, layer by layer: the loss of a
  // target by its distance to the one before tells what context is worth. 0: never.
  std::int64_t reset = 0;
};

struct EvaluationOptions : Reading {
  net::Lengths lengths;
  std::optional<shard::TokenId> unknown;  // the vocabulary's <unk>
  LossSink sink;
  TargetProgress progress;
  // If given, gets the attention of the scored targets' queries in every layer while the stream is
  // read layer by layer.
  nn::AttentionMap* attention_map = nullptr;
  // If given, gets the targets themselves, too, and the `top` likeliest tokens beside each while
  // the stream is read layer by layer.
  TargetSink target_sink = {};
  std::int64_t top = 0;
  // Targets before this position are read but not scored.
  std::int64_t first_target = 0;
  // The processes of a group share the work: each reads a part of the stream, as one of the columns
  // above. All of them return the same evaluation. The sink gets only the part of its own process.
  machine::ProcessGroup* group = nullptr;
};

// Returns whether a segment sees more than its own tokens.
bool has_memory(const net::Geometry& geometry);

// Throws ConfigError for a stride that is not from 1 to the segment, and for a network with memory,
// for which nothing would slide; 0 is no stride.
void check_stride(const net::Geometry& geometry, std::int64_t stride);

// The tokens of a packed folder; `reader` must outlive the result.
TokenSource source_of(shard::JoinedData& reader);

// Throws Error for a stream of fewer than two tokens and for ids outside the model's vocabulary,
// ConfigError for lengths that do not fit the network, Interrupted when a signal asks to stop.
Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options);

}  // namespace ql::eval
