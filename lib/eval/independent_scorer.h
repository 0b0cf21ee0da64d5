// Scores the units of a stream independently of each other.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "eval/scorers.h"

namespace ql::eval {

// Scores units such as lines. Every unit begins with an empty memory and, if there is a begin
// token, with this token. A unit that ends in its first segment is read by itself, side by side
// with others (eval/short_sequences.h). The segments of longer units go through a layer together;
// the memory is reset at the beginning of each unit, as nn/memory_documents.h resets it at
// documents, and the unit's last segment is padded.
class IndependentScorer : public Scorer {
 public:
  // `begin` is read before every unit, so that the unit's first token is a target. Without `begin`
  // nothing precedes that token, and it is not scored. Throws ConfigError for a stride.
  IndependentScorer(const nn::ModelAtLengths& model, std::string name,
                    std::optional<shard::TokenId> begin, const EvaluationOptions& options);

  // Takes the next token of the stream; returns true if the token is a target. Throws the errors of
  // StreamScorer::put().
  bool put(std::int64_t id);
  void end_unit();
  void put_waiting() override;
  void finish() override;

 private:
  // The network has not read these inputs (tokens and begin tokens) yet.
  struct Segment {
    std::vector<std::int64_t> inputs;
    std::int64_t before = 0;   // the inputs of the unit before this segment
    std::int64_t targets = 0;  // the first inputs have this many targets
    bool is_unit = false;      // a complete unit
  };
  struct Target {
    std::int64_t position = 0;  // in the stream
    std::int64_t id = 0;
  };
  void put_input(std::int64_t id);
  // Returns how many states the network computes for the segment.
  std::int64_t states_of(const Segment& segment) const;
  // Scores the segments that wait, except the last `left` ones.
  void score(std::size_t left);
  void read_together(const std::vector<const Segment*>& segments,
                     const std::vector<std::int64_t>& rows, at::Tensor& states);

  std::optional<shard::TokenId> begin_;
  std::deque<Segment> waiting_;
  std::deque<Target> targets_;       // of the segments that wait
  std::int64_t waiting_states_ = 0;  // of the segments that wait
  std::int64_t of_unit_ = 0;         // inputs of the current unit so far; 0 between units
  std::int64_t position_ = 0;        // of the next token of the stream
};

}  // namespace ql::eval
