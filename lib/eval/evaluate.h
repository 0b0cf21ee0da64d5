// Computes the exact perplexity: every target (a token that is predicted) is scored once, in one
// unbroken stream.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "eval/data_set.h"
#include "machine/process_group.h"
#include "net/geometry.h"
#include "nn/measure.h"
#include "nn/model.h"

namespace ql::eval {

// Adds up the losses of targets, for any kind of model.
struct LossSums {
  std::int64_t targets = 0;
  double nll = 0;      // sum of the losses in nats
  double squares = 0;  // sum of the squared losses

  void add(double loss);
  void add(const LossSums& other);
  double mean() const;        // nll / targets
  double perplexity() const;  // exp(mean)
  // Returns the standard error of mean() as if the losses were independent; NaN for fewer than two
  // targets.
  double standard_error() const;
};

// Holds the result of an evaluation. The inherited sums are over all targets. In an unbroken stream
// every token is a target, except the first, because no token precedes it.
struct Evaluation : LossSums {
  LossSums known;           // over the targets that are not <unk>
  std::int64_t stride = 0;  // targets that a sliding window scores; 0: no sliding windows
  std::int64_t reset = 0;   // tokens after which memory is emptied; 0: never
  std::string
      reset_at;  // kind of the units that are read independently, such as "line"; empty: none
  // Tokens that processes read before the part of the stream that they score; sum over processes.
  std::int64_t warm_up = 0;
  double seconds = 0;

  using LossSums::add;
  // Adds the evaluation of another text with the same settings.
  void add(const Evaluation& other);
};

// An output of a network is infinite or not a number. Weights that are too large give such outputs,
// although the weights themselves are finite.
class NotFinite : public Error {
 public:
  // `model` names the network and may be empty. `position` is that of the token that the output
  // predicts, if it is known.
  explicit NotFinite(const std::string& model, std::optional<std::int64_t> position = {});
};

// Throws NotFinite unless `value` is finite. All who compute outputs look at a loss or the
// logarithm of a probability in this way, before they use it. Both contain the logarithm of the
// softmax's sum, so they show an output that is not finite without a search through all logits. In
// an adaptive softmax these are the sums of the head and of the token's own cluster.
inline void require_finite(double value, const std::string& model, std::int64_t position) {
  if (!std::isfinite(value)) throw NotFinite(model, position);
}

struct LikelyToken {
  std::int64_t id = 0;
  double log_probability = 0;  // natural logarithm
};

// Holds scored targets at consecutive positions of the stream.
struct ScoredTargets {
  std::int64_t position = 0;  // of ids[0], in the stream
  const std::int64_t* ids = nullptr;
  const double* losses = nullptr;  // in nats
  std::int64_t count = 0;          // of ids and losses
  // Holds the `top` likeliest tokens at the position of every target, the likeliest first.
  const LikelyToken* likeliest = nullptr;
  std::int64_t top = 0;
};
// A TargetSink gets every scored target once, in the order of the stream.
using TargetSink = std::function<void(const ScoredTargets& targets)>;
using TargetProgress = std::function<void(std::int64_t targets_done)>;

// The stream is read layer by layer: a chunk of it goes through the first layer, then through the
// second, and so on. The segments of a chunk form a batch, and memories are carried from chunk to
// chunk. Every state is computed once. The losses are those of reading the stream segment by
// segment, except for the order of floating-point sums.
//
// A network without memory sees nothing before its segment. With a stride of N its segments are
// sliding windows: each window begins N tokens after the previous one and scores its newest N
// targets. Each of these targets has at least n_s - N + 1 tokens before it in its window. (Al-Rfou
// et al. 2018 use N = 1.) The first window scores all its targets.

// Names the units of a text whose losses are added up.
enum class Unit {
  kLine,  // ends with the token of line_end_of() (eval/units.h), usually <eos>
  // A doubled line begins and ends with <eos>, as in the One Billion Word corpus. The token after a
  // line's end begins the next line, even if this token is not <eos>.
  kDoubledLine,
  kDocument,
  // The tokens of a word may include whitespace around the word. UnitSum::text leaves it out.
  kWord,
  kToken,  // each token, for a TokenSink
  kWhole   // the complete stream
};
constexpr auto names_of(Unit) {
  return std::array{"line", "doubled-line", "document", "word", "token", "stream"};
}

// Chooses the token that is read before an independent unit.
struct Begin {
  bool none = false;
  std::optional<shard::TokenId> id = {};  // absent: the token that ends a line
};

struct EvaluationOptions {
  // Number of tokens that go through a layer at once; 0: segments_of_chunk() decides
  // (eval/chunk_size.h).
  std::int64_t chunk = 0;
  std::int64_t stride = 0;  // targets that a window scores, see above; 0: no sliding windows
  // After every run of this many tokens, memory is emptied and a new segment begins; 0: never.
  std::int64_t reset = 0;
  net::Lengths lengths;
  // If `alone` is given, every unit of this kind is read independently of the others
  // (eval/independent_scorer.h), after the token that `begin` chooses. If it is absent, the stream
  // is not divided. Only score_units() uses `alone` and `begin`.
  std::optional<Unit> alone = {};
  Begin begin = {};
  std::optional<shard::TokenId> unknown;  // the vocabulary's <unk>
  std::string model;                      // name of the network in messages; may be empty
  TargetSink sink;                        // if given, gets the scored targets
  TargetProgress progress;
  // If given, the map gets the attention of every layer. A query comes from a state of one or
  // several tokens. It counts only if the token after the newest of these tokens is scored.
  nn::AttentionMap* attention_map = nullptr;
  // For each target, `sink` also gets this many of the likeliest tokens.
  std::int64_t top = 0;
  // Targets before this position are read but not scored.
  std::int64_t first_target = 0;
  // The processes of a group share the work: each process scores one part of the stream
  // (eval/stream_parts.h). Before this part it reads the earlier segments on which the scores
  // depend. All processes return the same sums. In each process, `sink` gets only the targets of
  // that process's part. Never null.
  machine::ProcessGroup* group = &machine::ProcessGroup::single();
};

// Returns true if a segment sees more than its own tokens.
bool has_memory(const net::Geometry& geometry);

// Throws ConfigError for a stride outside 1 .. segment, and for a network with memory, because its
// windows do not slide. 0 stands for no stride and is always accepted.
void check_stride(const net::Geometry& geometry, std::int64_t stride);

// Throws Error for a stream of fewer than two tokens and for ids outside the model's vocabulary.
// Throws ConfigError for lengths that do not fit the network, and for a stride that check_stride()
// refuses. Throws Interrupted if a signal requests a stop.
Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options);

// These functions check the tokens that evaluators read.

// Throws Error if the stream has fewer than two tokens.
void check_length(const TokenSource& source);

// Throws Error for the first of `ids` outside 0 .. vocab_size-1; `begin` is the position of ids[0].
void check_ids(const std::string& name, std::int64_t begin, const std::int64_t* ids,
               std::int64_t count, std::int64_t vocab_size);

}  // namespace ql::eval
