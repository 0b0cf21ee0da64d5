// Makes rows of results: the figures, with every setting and count that they depend on.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "eval/data_set.h"
#include "eval/evaluate.h"
#include "eval/units.h"
#include "machine/precision.h"
#include "net/network.h"
#include "nn/measure.h"

namespace ql::eval {

// Describes the model that was evaluated. A unigram model has no network and no lengths.
struct EvaluatedModel {
  std::string name;  // the checkpoint, or the training data of a unigram model
  std::optional<net::Network> network;
  net::Lengths lengths;         // of this evaluation
  std::int64_t parameters = 0;  // parameters that were learned
  // This is the precision of the network's matrix products; absent for a unigram model.
  std::optional<machine::Precision> precision = {};
};

// Returns a flat object, with the same keys in the same order for every row (qleval(1) explains the
// keys). A figure that is not known or does not apply is null. A perplexity that exceeds
// every double is infinite.
Json report_row(const EvaluatedModel& model, const DataSet& data, const Evaluation& result);

// Adds the keys of the network that net::AttentionChange may change: clamp_len (null if distances
// have no limit) and same_length. Both are null without a network.
void add_attention_keys(Json& row, const std::optional<net::Network>& network);

// Returns a row of the attention table: a head's attention at one distance (nn/measure.h).
Json attention_row(const nn::AttentionMap::Distance& distance);

// Returns the row of the target with index i. The first keys are position, id, token (null if
// `texts` does not have the id) and loss. Then id_1, token_1 and log_probability_1 describe the
// likeliest token, id_2, token_2 and log_probability_2 the next, and so on.
Json token_row(const ScoredTargets& targets, std::int64_t i, const TokenTexts& texts);

// Returns the row of a line, document or word: unit (its number), word (only for words), targets,
// unknown_targets, nll, perplexity (null without targets).
Json unit_row(const UnitSum& sum);

}  // namespace ql::eval
