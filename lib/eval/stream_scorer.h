// Scores one stream as it comes. Each chunk goes layer by layer (nn/model_at_lengths.h,
// forward_stream), and memories are passed on to the next. It keeps one chunk, however long the
// stream is. With a stride the rows of a chunk are windows that overlap, instead of segments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "nn/model_at_lengths.h"
#include "shard/document_age.h"

namespace ql::eval {

class StreamScorer {
 public:
  // options.chunk tokens go through a layer at once, rounded to whole segments. `name` is the
  // stream's name in messages. The model must outlive this object.
  StreamScorer(const nn::ModelAtLengths& model, std::string name, const EvaluationOptions& options);

  // Says that a document begins with the token at `position` of the stream. Positions ascend, and
  // each comes before its token is put. Only networks that reset their memory at documents use
  // them.
  void put_document(std::int64_t position);
  // Takes the next ids of the stream. Throws Error for an id outside the vocabulary. After every
  // chunk this calls options.sink and options.progress, and throws Interrupted when a signal asks
  // to stop; the functions below do so, too.
  void put(const std::int64_t* ids, std::int64_t count);
  // Scores all whole segments, or windows, that are there. It is for the time while more of the
  // stream is waited for.
  void put_waiting();
  // Ends the stream and scores the rest.
  void finish();

  std::int64_t chunk_tokens() const { return segments_ * stride(); }
  const Evaluation& evaluation() const { return evaluation_; }

 private:
  std::int64_t segment() const { return model_.geometry().lengths.segment; }
  std::int64_t stride() const { return options_.stride > 0 ? options_.stride : segment(); }
  // Count the targets that the next window scores, and those whose tokens wait.
  std::int64_t targets_of_window() const { return segment() - context_; }
  std::int64_t waiting_targets() const;
  // Counts the targets of the next chunk, which ends where the memory is reset at the latest.
  std::int64_t next_targets() const;
  void score(std::int64_t count);
  std::vector<std::int64_t> next_ages(std::int64_t segments);
  std::vector<nn::Places> next_scored(std::int64_t windows, std::int64_t count) const;

  const nn::ModelAtLengths& model_;
  std::string name_;
  EvaluationOptions options_;
  std::int64_t segments_;  // of a chunk
  nn::Memory memory_;
  std::vector<std::int64_t> waiting_;  // from the first token of the next window on
  std::int64_t context_ = 0;           // tokens of it that windows before it have scored
  std::int64_t position_ = 0;          // of the first one that none has
  shard::DocumentAges documents_;
  Evaluation evaluation_;
};

}  // namespace ql::eval
