// Holds the caches from which tokens are decoded one by one: states, keys and values of earlier
// tokens.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "net/geometry.h"
#include "nn/memory.h"

namespace ql::nn {

class StepContext;

// Streams are decoded token by token. The classes of this file keep the states, keys and values of
// earlier tokens, so nothing is computed a second time inside a segment.

// Caches a window: a memory, and the part of the segment that has been computed so far. The cache
// holds either states [batch, length, width], or keys and values [batch, length, 2, n_head,
// d_head]. Each row of the batch is a stream.
class KvCache {
 public:
  // `memory` [batch, length, ...] is followed by a segment of at most `segment` states.
  KvCache(const at::Tensor& memory, std::int64_t segment);

  std::int64_t filled() const { return filled_; }  // states of the segment so far
  at::Tensor memory() const;                       // [batch, length, ...]
  // Returns the memory and the segment so far, [batch, length + filled, ...]. The result may share
  // its storage with the cache, so it is valid until the next change of the cache.
  at::Tensor window() const;
  // Returns the one or two tensors of which the window consists. Nothing is copied.
  std::vector<at::Tensor> parts() const;
  // Streams that share a window keep `states` itself, so the caller must not change it.
  void put(const at::Tensor& states);
  // Ends the segment: the memory becomes the newest states of concat(memory, segment[:shift]).
  void shift(std::int64_t shift);
  KvCache streams(const at::Tensor& indexes) const;
  // Returns `count` streams that share the window of this only stream.
  KvCache shared(std::int64_t count) const;
  // Returns a cache for a segment of at most `segment` states, whose memory is map(memory()). The
  // map is applied once if the streams share their memory.
  KvCache of_memory(const std::function<at::Tensor(const at::Tensor&)>& map,
                    std::int64_t segment) const;
  std::int64_t bytes() const;  // of what the streams do not share

 private:
  at::Tensor buffer_;  // [batch, room, ...], longer than the window, so states seldom move
  // Streams that share a window have this beginning of it, of stride 0 between streams, and no
  // buffer_. What follows the beginning is in own_, which is undefined as long as nothing does.
  at::Tensor beginning_, own_;
  std::int64_t length_, segment_;
  std::int64_t begin_ = 0, filled_ = 0;
};

struct DecodeStage {
  KvCache states;
  std::optional<KvCache>
      keys_values;  // [.., 2, n_head, d_head]; made when a segment's first states arrive
  // A Compressive Transformer keeps n_cm compressed states, and their keys and values. If the
  // network's pool is kMostUsed, `usage` is the attention that each index of the window has
  // received in this segment, summed over queries.
  at::Tensor compressed, compressed_keys_values, usage;
  at::Tensor positions;  // position_scores() of the complete window, the same for all streams
};

// Holds the state of decoding. Decoding can only begin between segments.
class DecodeState {
 public:
  // `memory` is the memory of `batch` streams, from start_memory(), forward() or forward_stream()
  // of ModelAtLengths. For a network that resets its memory at documents, `offset` is the
  // number of tokens that the current document has before the segment. The `options` are the
  // model's.
  DecodeState(const net::Geometry& geometry, const Memory& memory, std::int64_t batch,
              const at::TensorOptions& options, std::int64_t offset = 0);

  // Only moving is possible: a copy would share tensors that change.
  DecodeState(DecodeState&&) = default;
  DecodeState& operator=(DecodeState&&) = default;

  std::int64_t batch() const;
  // Returns a copy of the streams with these indexes, in this order. An index may occur several
  // times.
  DecodeState streams(const std::vector<std::int64_t>& indexes) const;
  // Returns `count` copies of the only stream, which share its windows: they take no memory, and
  // reading them takes less time. But each put into such a window copies what the stream has of its
  // own, so these streams are for tokens that come together.
  DecodeState shared(std::int64_t count) const;
  // Estimates the bytes of storage that one stream takes.
  std::int64_t bytes_per_stream() const;
  // Returns the memory, which is valid until this object changes. Throws std::logic_error if a
  // segment has begun and is not complete.
  Memory memory() const;
  // Call this if the next token begins a document.
  void begin_document() { document_offset_ = 0; }

 private:
  DecodeState() = default;
  // Returns a copy whose windows are results of `cache`, and whose other tensors are results of
  // `rows`.
  DecodeState copied(const std::function<KvCache(const KvCache&)>& cache,
                     const std::function<at::Tensor(const at::Tensor&)>& rows) const;
  friend class ModelAtLengths;
  friend class DecodeStep;
  std::vector<DecodeStage> stages_;
  std::int64_t tokens_ = 0;           // of the segment so far
  std::int64_t document_offset_ = 0;  // tokens of the document so far
};

// Runs a step (nn/step.h) for the next tokens of every stream in `decoding`, and adds their states
// to `decoding`. `embedded` [batch, tokens, d_model] are their embeddings; they must not exceed the
// segment. Returns the last stage's states, of the same shape. A stage (net/geometry.h) computes
// the states that the tokens complete, possibly none. At the beginning of a segment, the stages of
// coarser scales may also compute older states again. There is no gradient and no dropout.
at::Tensor decode_tokens(const StepContext& step, const at::Tensor& embedded,
                         DecodeState& decoding);

}  // namespace ql::nn
