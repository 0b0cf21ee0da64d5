// Scores one stream while it arrives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "nn/model_at_lengths.h"
#include "shard/document_starts.h"

namespace ql::eval {

// Reads a stream chunk by chunk. The segments of a chunk go through the network layer by layer
// (nn/model_at_lengths.h, forward_stream()), and their memories are passed on to the next chunk.
// Only one chunk is kept, however long the stream is.
class Scorer {
 public:
  virtual ~Scorer() = default;
  // Scores all complete segments that have arrived. With options.stride, scores all complete
  // sliding windows instead. Call this before waiting for more of the stream.
  virtual void put_waiting() = 0;
  // Ends the stream, and its last unit, and scores the remaining targets.
  virtual void finish() = 0;
  const Evaluation& evaluation() const { return evaluation_; }

 protected:
  // options.chunk is the number of tokens that go through a layer at once. It is rounded down to
  // complete segments, but not below one segment. If it is 0, segments_of_chunk() chooses the
  // number of segments. `name` is the stream's name in messages. The model must outlive this
  // object.
  Scorer(const nn::ModelAtLengths& model, std::string name, const EvaluationOptions& options);
  std::int64_t segment() const { return model_.geometry().lengths.segment; }

  const nn::ModelAtLengths& model_;
  std::string name_;
  EvaluationOptions options_;
  std::int64_t segments_;  // in a chunk
  nn::Memory memory_;
  Evaluation evaluation_;
};

// Scores one stream while it arrives. The stream's first token is not a target. With options.stride
// the network reads overlapping windows instead of consecutive segments. With options.reset the
// memory is reset after every options.reset tokens, as nn/memory_documents.h resets it at
// documents, and a new segment or window begins.
class StreamScorer : public Scorer {
 public:
  StreamScorer(const nn::ModelAtLengths& model, std::string name, const EvaluationOptions& options);

  // Call this for every token that begins a document, before put() gets the token. `position` is
  // the token's position in the stream; positions must ascend. Only networks that reset their
  // memory at documents use them.
  void put_document(std::int64_t position);
  // Takes the next ids of the stream. Throws Error for an id outside the vocabulary. After every
  // chunk this function calls options.sink and options.progress, and throws Interrupted if a signal
  // requests a stop. put_waiting() and finish() do the same.
  void put(const std::int64_t* ids, std::int64_t count);
  void put_waiting() override;
  void finish() override;

  std::int64_t chunk_tokens() const { return segments_ * stride(); }

 private:
  // A segment, or with options.stride a sliding window. Positions are those of the stream.
  struct Window {
    std::int64_t begin = 0;        // of its inputs
    std::int64_t first = 0;        // the first input whose target it scores
    std::int64_t end = 0;          // after its last input that has a target
    std::int64_t since_reset = 0;  // inputs between the last reset and `begin`
  };
  std::int64_t stride() const { return options_.stride > 0 ? options_.stride : segment(); }
  std::int64_t waiting_end() const { return begin_ + static_cast<std::int64_t>(waiting_.size()); }
  // Returns the window whose first target is that of the input at `position`.
  Window window_at(std::int64_t position) const;
  // Returns the next windows, up to a chunk, all of whose tokens have arrived. If `all`, the last
  // window of the stream may have fewer tokens.
  std::vector<Window> next_windows(bool all) const;
  void score(const std::vector<Window>& windows);

  std::vector<std::int64_t> waiting_;  // pending tokens, from that at begin_ on
  std::int64_t begin_ = 0;             // where the next window begins
  std::int64_t position_ = 0;          // of the first input whose target is not yet scored
  shard::DocumentOffsets documents_;
};

}  // namespace ql::eval
