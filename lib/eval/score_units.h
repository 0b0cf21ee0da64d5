// Scores one stream and reports every line or document as soon as it is known, however long the
// stream: for filtering text in a pipe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "eval/data_set.h"
#include "eval/evaluation.h"
#include "eval/units.h"
#include "net/model_file.h"
#include "nn/model.h"

namespace ql::eval {

enum class Unit {
  kLine,         // ends with <eos>
  kDoubledLine,  // begins and ends with <eos>, as in the One Billion Word corpus; a token that
                 // comes behind the end of a line begins one, too
  kDocument,
  kWhole  // the whole stream
};

struct UnitOptions {
  Unit unit = Unit::kLine;
  net::Lengths lengths;
  std::int64_t chunk = 0;  // as EvaluationOptions
  TargetProgress progress;
};

struct UnitStudy {
  Evaluation evaluation;
  DataSet data;  // whose tokens can no longer be read
};

// `path` as for open_data(), but a stream on standard input is read as it comes and not kept; what
// is scored before damage in it is found was whole. Throws Error for lines of a vocabulary without
// <eos>, otherwise what open_data(), check_vocabulary() and evaluate() throw. A stream of a single
// token has units without a target, but as a whole it is refused, as an empty one always is.
// Progress is told after every chunk.
UnitStudy score_units(const nn::Model& model, const std::string& model_name,
                      const std::optional<shard::VocabularyInfo>& trained_with,
                      const std::string& path, const UnitOptions& options,
                      const UnitSums::Sink& sink);

}  // namespace ql::eval
