// A sink takes a sequence of tokens and document boundaries: a stream, a packed folder, plain ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "shard/token_info.h"

namespace ql::shard {

// Takes bytes, to standard output or into memory.
using ByteSink = std::function<void(const void* data, std::size_t size)>;

// Called with the number of tokens so far.
using TokensDone = std::function<void(std::int64_t tokens)>;

class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // A document begins at the next token. The first token always begins one; a document without
  // tokens does not exist.
  virtual void begin_document() = 0;
  // Ids must be below the vocabulary's size (std::logic_error).
  virtual void write(const TokenId* ids, std::size_t count) = 0;
  // Passes on what is buffered: for producers whose reader should not wait for a full block.
  virtual void flush() {}
  // Nothing counts as written before this returns.
  virtual void finish(const std::optional<TextCounts>& counts) = 0;
};

// Sends ids to `sink`; a document begins at each of `starts`, ascending offsets into the ids, of
// which one may be their number.
template <typename Starts>
void send_tokens(const TokenId* ids, std::size_t count, const Starts& starts, TokenSink& sink) {
  std::size_t sent = 0;
  for (const std::size_t start : starts) {
    sink.write(ids + sent, start - sent);
    sink.begin_document();
    sent = start;
  }
  sink.write(ids + sent, count - sent);
}

}  // namespace ql::shard
