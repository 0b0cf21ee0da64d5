// Scores one stream of any length and reports every line, document or word as soon as it is known.
// This serves to filter text in a pipe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/names.h"
#include "eval/data_set.h"
#include "eval/evaluate.h"
#include "eval/token_texts.h"
#include "eval/units.h"
#include "nn/model.h"

namespace ql::eval {

enum class Unit {
  kLine,         // ends with <eos>
  kDoubledLine,  // begins and ends with <eos>, as in the One Billion Word corpus; any other token
                 // behind the end of a line begins one, too
  kDocument,
  // A word with the blanks before it. Its sum has the word as text.
  kWord,
  kToken,  // each alone, for a TokenSink
  kWhole   // the whole stream
};
constexpr auto names_of(Unit) {
  return std::array{"line", "doubled-line", "document", "word", "token", "stream"};
}

// The token before a unit that stands alone.
struct Begin {
  bool none = false;
  std::optional<shard::TokenId> id = {};  // absent: that which ends a line
};

// Is called as a LossSink is, and knows what the ids stand for.
using TokenSink = std::function<void(const ScoredTargets& targets, const TokenTexts& texts)>;

struct UnitOptions : Reading {
  Unit unit = Unit::kLine;
  // Every such unit is read as if it stood alone (eval/independent_scorer.h), behind the token
  // `begin`, or behind none; absent: the stream is read as one.
  std::optional<Unit> alone = {};
  Begin begin = {};
  net::Lengths lengths;
  TargetProgress progress;
  // Unit::kToken alone asks for it: so many of the likeliest tokens come with every target, at most
  // the size of the vocabulary.
  std::int64_t top = 0;
  TokenSink token_sink = {};
  nn::AttentionMap* attention_map = nullptr;  // that of EvaluationOptions
};

struct UnitStudy {
  Evaluation evaluation;
  DataSet data;  // its tokens can no longer be read
};

// `path` is that of open_data(), but a stream is read as it comes and not kept.
// The units that were scored before damage in it is found were whole. Throws Error for lines of a
// vocabulary without <eos> and for words where the vocabulary is not known, otherwise what
// open_data(), check_vocabulary() and evaluate() throw. A stream of a single token has units
// without a target, but as a whole, and for its tokens, it is refused. An empty stream always is.
// Progress is reported after every chunk.
UnitStudy score_units(const nn::Model& model, const std::string& model_name,
                      const std::optional<shard::VocabularyInfo>& trained_with,
                      const std::string& path, const UnitOptions& options,
                      const UnitSums::Sink& sink);

}  // namespace ql::eval
