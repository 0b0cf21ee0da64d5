// Scores one stream as it comes, layer by layer (nn/consecutive_memories_internal.h): chunk by
// chunk, memories passed on. What is kept is a chunk, however long the stream.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "eval/evaluation.h"
#include "net/geometry.h"
#include "nn/model.h"

namespace ql::eval {

class StreamScorer {
 public:
  // `chunk` tokens go through a layer at once, rounded to whole segments; 0: as many as the memory
  // allows (eval/chunk_size.h). `model` must outlive it. Throws ConfigError for lengths that do not
  // fit.
  StreamScorer(const nn::Model& model, const net::Lengths& lengths, std::int64_t chunk);

  // A document begins with the token at `position` of the stream: ascending, each before its token
  // is put. Only networks that reset their memory there take notice.
  void put_document(std::int64_t position);
  // The next ids of the stream; calls `sink` for every chunk that is complete.
  void put(const std::int64_t* ids, std::int64_t count, const TargetSink& sink);
  // Scores all whole segments that are there: while more of the stream is waited for.
  void put_waiting(const TargetSink& sink);
  // The end of the stream: calls `sink` for the rest.
  void finish(const TargetSink& sink);

  std::int64_t chunk_tokens() const { return segments_ * geometry_.lengths.segment; }

 private:
  void score(std::int64_t count, const TargetSink& sink);
  std::vector<std::int64_t> next_ages(std::int64_t segments);

  const nn::Model& model_;
  net::Geometry geometry_;
  std::int64_t segments_;  // of a chunk
  nn::Memory memory_;
  std::vector<std::int64_t> waiting_;  // from the first token that was not read yet
  std::int64_t position_ = 0;          // of that token
  std::int64_t document_ = 0;          // where the document of the last segment began
  std::deque<std::int64_t> starts_;    // of the documents after it
};

}  // namespace ql::eval
