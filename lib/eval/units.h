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

// Holds the sums over one line, document or word.
struct UnitSum {
  std::int64_t number = 0;           // from 1
  std::int64_t targets = 0;          // scored tokens
  std::int64_t unknown_targets = 0;  // targets that are <unk>
  double nll = 0;                    // in nats
  std::optional<std::string> text;   // the word; absent for lines and documents
};

// Adds up losses by unit. The tokens come first, and their losses later. The sink gets a unit's sum
// as soon as the unit's end and last loss are known, or at finish().
class UnitSums {
 public:
  using Sink = std::function<void(const UnitSum&)>;
  UnitSums(std::optional<shard::TokenId> unknown, Sink sink);

  // Takes the next token of the stream. If `is_target`, its loss will follow.
  void put_token(std::int64_t id, bool is_target);
  // Ends the current unit. `text` becomes UnitSum::text of the unit's sum.
  void end_unit(std::optional<std::string> text = std::nullopt);
  // Takes the losses of consecutive targets, the first at `position` of the stream. Calls come in
  // stream order.
  void put_losses(std::int64_t position, const double* losses, std::int64_t count);
  // Ends the stream, and an open unit with it.
  void finish();

 private:
  struct Unit {
    // This is the position after the unit's last target. A unit without targets has the `end` of
    // the unit before it.
    std::int64_t end = 0;
    std::int64_t unknown_targets = 0;
    std::optional<std::string> text = {};
  };
  void hand_over_scored();
  void hand_over();

  std::optional<shard::TokenId> unknown_;
  Sink sink_;
  std::deque<Unit> ended_;
  Unit unit_;                  // of the tokens since the last unit's end
  bool open_ = false;          // there are tokens since the last unit's end
  UnitSum sum_;                // of the unit whose losses arrive
  std::int64_t position_ = 0;  // position after the last token
  std::int64_t scored_ = 0;    // position after the last target whose loss has come
};

// Scores one stream of any length and reports every line, document or word as soon as its loss is
// known. So a pipe can filter text by its loss.

// Gets targets as a TargetSink does, and the strings of all ids.
using TokenSink = std::function<void(const ScoredTargets& targets, const TokenTexts& texts)>;

// score_units() ignores the inherited `sink`, and takes the inherited `unknown` from the vocabulary
// of the data. The inherited `top` is only for Unit::kToken, and is at most the size of the
// vocabulary.
struct UnitOptions : EvaluationOptions {
  Unit unit = Unit::kLine;
  TokenSink token_sink = {};  // only for Unit::kToken
};

struct UnitScores {
  Evaluation evaluation;
  DataSet data;  // only describes the data: `source` has no functions to read tokens
};

// Throws UsageError for --begin if the vocabulary does not have the token `id`.
void check_begin(std::int64_t id, std::int64_t vocab_size);

// Scores the units of the data at `path`. Opens the data as open_data() does, but reads a stream
// while it arrives, without keeping it. If the stream is damaged, the units reported before were
// complete. Progress is reported after every chunk. For Unit::kToken `sink` is not called.
//
// Throws Error in these cases:
// - The units are lines, and line_end_of() finds no token that ends them.
// - The units are words, and the texts of the tokens are not known.
// - Independent units need a begin token, and none is given or known.
// - The data has no tokens.
// - The data has a single token, and options.unit is Unit::kWhole or Unit::kToken. With independent
//   units, a single token is accepted.
//
// Throws UsageError for a begin token outside the vocabulary. Also throws the errors of
// open_data(), check_vocabulary() and evaluate().
UnitScores score_units(const nn::Model& model, const std::string& model_name,
                       const std::optional<shard::VocabularyInfo>& trained_with,
                       const std::string& path, const UnitOptions& options,
                       const UnitSums::Sink& sink);

// Finds the token that ends a line.

// Returns <eos>. If the vocabulary has no <eos>, returns the line feed of a vocabulary of
// characters, bytes or pieces; a SentencePiece model may have it as the byte <0x0A>. If there is
// no line feed either, returns nothing: lines cannot be separated. `text` returns the content of
// the vocabulary file, or "".
std::optional<shard::TokenId> line_end_of(const shard::VocabularyInfo& vocabulary,
                                          const std::function<std::string()>& text);

}  // namespace ql::eval
