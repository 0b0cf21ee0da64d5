// Scores one stream as it comes, or its units independently of each other.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "nn/model.h"
#include "shard/document_starts.h"

namespace ql::eval {

// Reads a stream chunk by chunk. Each chunk goes layer by layer (nn/model.h, forward_stream), and
// memories are passed on to the next one. Only one chunk is kept, however long the stream is.
class Scorer {
 public:
  virtual ~Scorer() = default;
  // Scores all complete segments, or windows, that have arrived. Call it before waiting for more of
  // the stream.
  virtual void put_waiting() = 0;
  // Ends the stream, and its last unit, and scores the remaining targets.
  virtual void finish() = 0;
  const Evaluation& evaluation() const { return evaluation_; }

 protected:
  // options.chunk tokens go through a layer at once, rounded to complete segments. `name` is the
  // stream's name in messages. The model must outlive this object.
  Scorer(const nn::ModelAtLengths& model, std::string name, const EvaluationOptions& options);
  std::int64_t segment() const { return model_.geometry().lengths.segment; }

  const nn::ModelAtLengths& model_;
  std::string name_;
  EvaluationOptions options_;
  std::int64_t segments_;  // of a chunk
  nn::Memory memory_;
  Evaluation evaluation_;
};

// Scores one stream as it comes. With a stride the rows of a chunk are windows that overlap,
// instead of segments.
class StreamScorer : public Scorer {
 public:
  StreamScorer(const nn::ModelAtLengths& model, std::string name, const EvaluationOptions& options);

  // Call this when a document begins with the token at `position` of the stream, in ascending order
  // and before that token is put. Only networks that reset their memory at documents use it.
  void put_document(std::int64_t position);
  // Takes the next ids of the stream. Throws Error for an id outside the vocabulary. After every
  // chunk this calls options.sink and options.progress, and throws Interrupted if a signal requests
  // a stop; so do the functions below.
  void put(const std::int64_t* ids, std::int64_t count);
  void put_waiting() override;
  void finish() override;

  std::int64_t chunk_tokens() const { return segments_ * stride(); }

 private:
  std::int64_t stride() const { return options_.stride > 0 ? options_.stride : segment(); }
  // Return the number of targets that the next window scores, and of those whose tokens are
  // pending.
  std::int64_t targets_of_window() const { return segment() - context_; }
  std::int64_t waiting_targets() const;
  // Returns the number of targets in the next chunk, which ends at the latest where the memory is
  // reset.
  std::int64_t next_targets() const;
  void score(std::int64_t count);

  std::vector<std::int64_t>
      waiting_;                // pending tokens, beginning with the first of the next window
  std::int64_t context_ = 0;   // those of them that earlier windows have scored
  std::int64_t position_ = 0;  // of the first token that no window has scored
  shard::DocumentAges documents_;
};

// Scores the units of a stream, such as its lines, independently of each other: each is read from
// empty memory, after a begin token. Every unit begins with a segment. Units are read together like
// the segments of one stream, because a network that resets its memory at documents (nn/memory.h)
// forgets earlier units; only the last segment of a unit is padded.
class IndependentScorer : public Scorer {
 public:
  // `begin` is read before every unit and makes its first token a target; without it nothing
  // precedes that token. Throws ConfigError for a stride.
  IndependentScorer(const nn::ModelAtLengths& model, std::string name,
                    std::optional<shard::TokenId> begin, const EvaluationOptions& options);

  // Takes the next token of the stream; returns true if it is a target. Throws as StreamScorer
  // does.
  bool put(std::int64_t id);
  void end_unit();
  void put_waiting() override;
  void finish() override;

 private:
  struct Target {
    std::int64_t place = 0;     // of its input among the pending ones
    std::int64_t position = 0;  // in the stream
    std::int64_t id = 0;
  };
  void put_input(std::int64_t id);
  void score(std::int64_t segments);

  std::optional<shard::TokenId> begin_;
  std::vector<std::int64_t> inputs_;  // in complete segments, except for the open unit
  std::vector<std::int64_t> ages_;    // of each of these segments: inputs of its unit before it
  std::deque<Target> targets_;        // of these inputs
  std::int64_t of_unit_ = 0;          // inputs of the open unit
  std::int64_t position_ = 0;         // of the next token of the stream
};

}  // namespace ql::eval
