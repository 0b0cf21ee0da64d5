// Adds up losses by line, document or word, and scores a stream of any length.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "base/strings.h"
#include "eval/data_set.h"
#include "eval/evaluate.h"
#include "nn/model.h"
#include "shard/manifest.h"

namespace ql::eval {

// UnitSums adds up losses by line, document or word.
struct UnitSum {
  std::int64_t number = 0;           // from 1
  std::int64_t targets = 0;          // scored tokens
  std::int64_t unknown_targets = 0;  // targets that are <unk>
  double nll = 0;                    // nats
  std::optional<std::string> text;   // of a word
};

// Tokens come first, their losses later. A unit is handed over as soon as its end and its last loss
// are known, or at finish().
class UnitSums {
 public:
  using Sink = std::function<void(const UnitSum&)>;
  UnitSums(std::optional<shard::TokenId> unknown, Sink sink);

  // If `is_target`, a loss of the token will follow.
  void put_token(std::int64_t id, bool is_target);
  // Call this if the unit of the tokens so far is complete. `text` goes with its sum.
  void end_unit(std::optional<std::string> text = std::nullopt);
  // Takes the losses of consecutive targets, beginning at `position` of the stream, in order.
  void put_losses(std::int64_t position, const double* losses, std::int64_t count);
  // Ends the stream. An open unit is handed over too.
  void finish();

 private:
  struct Unit {
    std::int64_t end = 0;  // position after its last target, or after the last one before it
    std::int64_t unknown_targets = 0;
    std::optional<std::string> text = {};
  };
  void hand_over_scored();
  void hand_over();

  std::optional<shard::TokenId> unknown_;
  Sink sink_;
  std::deque<Unit> ended_;
  Unit unit_;                  // of the tokens since the last end
  bool open_ = false;          // there are such tokens
  UnitSum sum_;                // of the unit whose losses arrive
  std::int64_t position_ = 0;  // after the last token
  std::int64_t scored_ = 0;    // after the last loss
};

// Scores one stream of any length and reports every line, document or word as soon as it is known.
// This serves to filter text in a pipe.

// Called like a TargetSink, with the texts of the ids.
using TokenSink = std::function<void(const ScoredTargets& targets, const TokenTexts& texts)>;

// The sink of EvaluationOptions is not called, `unknown` is that of the data, and `top`, at most
// the size of the vocabulary, is only for Unit::kToken.
struct UnitOptions : EvaluationOptions {
  Unit unit = Unit::kLine;
  TokenSink token_sink = {};  // only for Unit::kToken
};

struct UnitScores {
  Evaluation evaluation;
  DataSet data;  // its tokens can no longer be read
};

// `path` is that of open_data(), but a stream is read as it comes and not kept. If damage is found
// in it, the units scored until then were complete. Throws Error for lines of a vocabulary without
// <eos> and for words if the vocabulary is not known, otherwise what open_data(),
// check_vocabulary() and evaluate() throw. A stream of a single token has units without a target;
// it is refused for Unit::kWhole and Unit::kToken. An empty stream is always refused. Progress is
// reported after every chunk. For Unit::kToken the sink is not called.
UnitScores score_units(const nn::Model& model, const std::string& model_name,
                       const std::optional<shard::VocabularyInfo>& trained_with,
                       const std::string& path, const UnitOptions& options,
                       const UnitSums::Sink& sink);

// Finds the token that ends a line.

// Returns <eos>, or the token of the line feed in a vocabulary of characters, bytes or pieces, or
// nothing if lines cannot be separated. `text` returns the vocabulary's file, or "".
std::optional<shard::TokenId> line_end_of(const shard::VocabularyInfo& vocabulary,
                                          const std::function<std::string()>& text);

}  // namespace ql::eval
