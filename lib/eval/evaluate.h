// Computes the exact perplexity: every target is scored once, in one unbroken stream.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "eval/data_set.h"
#include "machine/process_group.h"
#include "net/geometry.h"
#include "nn/measure.h"
#include "nn/model.h"

namespace ql::eval {

// An evaluation of any kind of model has this result.
struct LossSums {
  std::int64_t targets = 0;
  double nll = 0;      // sum of the losses in nats
  double squares = 0;  // sum of the squared losses

  void add(double loss);
  void add(const LossSums& other);
  double mean() const;        // nll / targets
  double perplexity() const;  // exp(mean)
  // Returns the standard error of mean(), assuming independent losses; NaN below two targets.
  double standard_error() const;
};

// The sums are over all targets. A stream has one target less than tokens, because nothing precedes
// the first token.
struct Evaluation : LossSums {
  LossSums known;           // over the targets that are not <unk>
  std::int64_t batch = 0;   // columns read in parallel
  std::int64_t stride = 0;  // targets that a window scores; 0: there are no windows
  std::int64_t reset = 0;   // tokens after which memory is emptied; 0: never
  std::string
      reset_at;  // unit that is read independently of the others, such as "line"; empty: none
  std::int64_t warm_up = 0;  // tokens read again, unscored, where columns begin; of all columns
  double seconds = 0;

  using LossSums::add;
  // Adds the evaluation of another text with the same settings.
  void add(const Evaluation& other);
};

struct LikelyToken {
  std::int64_t id = 0;
  double log_probability = 0;  // natural logarithm
};

// Holds scored targets at consecutive positions of the stream.
struct ScoredTargets {
  std::int64_t position = 0;  // of the first target token in the stream
  const std::int64_t* ids = nullptr;
  const double* losses = nullptr;  // in nats
  std::int64_t count = 0;          // of ids and losses
  // These are the likeliest tokens at the place of every target, `top` for each target, the
  // likeliest first.
  const LikelyToken* likeliest = nullptr;
  std::int64_t top = 0;
};
// A TargetSink gets every target once. Calls for one column come in order; columns interleave.
using TargetSink = std::function<void(const ScoredTargets& targets)>;
using TargetProgress = std::function<void(std::int64_t targets_done)>;

// There are two ways to compute the exact perplexity.
//
// Layer by layer: a chunk of the stream goes through the first layer, then through the second, and
// so on, with its segments as a batch and memories carried from chunk to chunk. Every state is
// computed once.
//
// Step by step: the stream is cut into `batch` columns that are read in parallel
// (eval/stream_columns.h). Each column first reads, and does not score, as many tokens before its
// start as the network's exact context length reaches back, on segment boundaries of the stream.
//
// Both give the losses of reading the complete stream with batch 1, except for the order of
// floating-point sums.
//
// A network without memory forgets at the end of every segment. With a stride of N its segments are
// sliding windows instead: each begins N tokens after the previous one and scores its newest N
// targets, layer by layer, so that each of them has at least n_s - N tokens before it in its
// window. (Al-Rfou et al. 2018 have N = 1.) The first window scores all its targets.

// The parts of a text.
enum class Unit {
  kLine,         // ends with <eos>
  kDoubledLine,  // begins and ends with <eos>, as in the One Billion Word corpus; any other token
                 // after the end of a line begins one too
  kDocument,
  // A word with the blanks before it. Its sum has the word as text.
  kWord,
  kToken,  // each alone, for a TokenSink
  kWhole   // the complete stream
};
constexpr auto names_of(Unit) {
  return std::array{"line", "doubled-line", "document", "word", "token", "stream"};
}

// The token before an independent unit.
struct Begin {
  bool none = false;
  std::optional<shard::TokenId> id = {};  // absent: the one that ends a line
};

struct EvaluationOptions {
  std::int64_t batch = 0;  // 0: layer by layer; else step by step, at most this many columns
  // Tokens that go through a layer at once; 0: chosen by the available memory.
  std::int64_t chunk = 0;
  std::int64_t stride = 0;  // targets that a window scores, see above; 0: all of its segment
  // Tokens after which memory is emptied and a new segment begins, layer by layer: the loss of a
  // target by its distance to the last reset shows the value of context. 0: never.
  std::int64_t reset = 0;
  net::Lengths lengths;
  // Every such unit is read independently of the others (eval/scorers.h), after the token `begin`,
  // or after none; absent: the stream is read as one. Only score_units() reads them.
  std::optional<Unit> alone = {};
  Begin begin = {};
  std::optional<shard::TokenId> unknown;  // the vocabulary's <unk>
  TargetSink sink;                        // if given, gets the scored targets
  TargetProgress progress;
  // If given, gets the attention of the scored targets' queries in every layer while the stream is
  // read layer by layer.
  nn::AttentionMap* attention_map = nullptr;
  // While the stream is read layer by layer, the sink also gets this many of the likeliest tokens
  // at each target.
  std::int64_t top = 0;
  // Targets before this position are read but not scored.
  std::int64_t first_target = 0;
  // The processes of a group share the work: each reads a part of the stream, as one of the columns
  // above. All of them return the same evaluation. The sink gets only the part of its own process.
  machine::ProcessGroup* group = nullptr;
};

// Returns true if a segment sees more than its own tokens.
bool has_memory(const net::Geometry& geometry);

// Throws ConfigError for a stride that is not from 1 to the segment, and for a network with memory,
// for which nothing would slide; 0 stands for no stride.
void check_stride(const net::Geometry& geometry, std::int64_t stride);

// Throws Error for a stream of fewer than two tokens and for ids outside the model's vocabulary,
// ConfigError for lengths that do not fit the network, Interrupted if a signal requests a stop.
Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options);

// The way of evaluate() that goes step by step, with `options.batch` columns in parallel
// (eval/stream_columns.h).
Evaluation evaluate_columns(const nn::ModelAtLengths& model, const TokenSource& source,
                            const EvaluationOptions& options);

// Checks the tokens that both evaluators read.

// Throws Error if the stream has fewer than two tokens, because nothing could be scored.
void check_length(const TokenSource& source);

// Throws Error for the first of `ids` outside 0 .. vocab_size-1; `begin` is the position of ids[0].
void check_ids(const std::string& name, std::int64_t begin, const std::int64_t* ids,
               std::int64_t count, std::int64_t vocab_size);

}  // namespace ql::eval
