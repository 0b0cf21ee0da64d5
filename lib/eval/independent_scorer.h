// Scores the units of a stream, such as its lines, as if each stood alone: read from empty memory,
// behind a begin token.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "nn/model_at_lengths.h"

namespace ql::eval {

// Every unit begins with a segment. A network that is told so forgets all that was before
// (nn/document_reset_internal.h), so units are read side by side, as the segments of one stream
// are, and nothing is padded but the last segment of a unit.
class IndependentScorer {
 public:
  // `begin` is read before every unit and makes its first token a target; without it that token has
  // none before it. The model must outlive this object. Throws ConfigError for a stride or a number
  // of tokens after which memory is emptied.
  IndependentScorer(const nn::ModelAtLengths& model, std::string name,
                    std::optional<shard::TokenId> begin, const EvaluationOptions& options);

  // Takes the next token of the stream; true when it is a target. Throws as StreamScorer does.
  bool put(std::int64_t id);
  void end_unit();
  // Scores all whole segments that are there.
  void put_waiting();
  // Ends the last unit and scores the rest.
  void finish();

  const Evaluation& evaluation() const { return evaluation_; }

 private:
  struct Target {
    std::int64_t place = 0;     // of its input among the waiting ones
    std::int64_t position = 0;  // in the stream
    std::int64_t id = 0;
  };
  std::int64_t segment() const { return model_.geometry().lengths.segment; }
  void put_input(std::int64_t id);
  void score(std::int64_t segments);

  const nn::ModelAtLengths& model_;
  std::string name_;
  std::optional<shard::TokenId> begin_;
  EvaluationOptions options_;
  std::int64_t segments_;  // of a chunk
  nn::Memory memory_;
  std::vector<std::int64_t> inputs_;  // in whole segments, but for the unit under way
  std::vector<std::int64_t> ages_;    // of each of these segments: inputs of its unit before it
  std::deque<Target> targets_;        // of these inputs
  std::int64_t of_unit_ = 0;          // inputs of the unit under way
  std::int64_t position_ = 0;         // of the next token of the stream
  Evaluation evaluation_;
};

}  // namespace ql::eval
