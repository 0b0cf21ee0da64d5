// A place in packed data that survives a restart.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/json.h"
#include "shard/token_reader.h"

namespace ql::shard {

class TokenCursor {
 public:
  // `slot` is the reader's cursor number: cursors that read far apart take different ones. The
  // reader must outlive the cursor. Throws std::out_of_range for a position beyond the end.
  explicit TokenCursor(TokenReader& reader, std::size_t slot = 0, std::int64_t position = 0);

  std::int64_t position() const { return position_; }  // of the next token
  std::int64_t remaining() const { return reader_->tokens() - position_; }
  void seek(std::int64_t position);  // std::out_of_range beyond the end

  // Copies up to `count` tokens to `out` and moves on. Returns how many: fewer only at the end.
  // When reading throws, the cursor stays where it was.
  std::int64_t read(std::int64_t count, std::int64_t* out);

  // {"data": hash, "tokens": N, "position": P}
  Json to_json() const;
  // Moves to a saved place. FormatError when it was saved on other data (see TokenReader::hash).
  void restore(const JsonObject& saved);

 private:
  TokenReader* reader_;
  std::size_t slot_;
  std::int64_t position_ = 0;
};

}  // namespace ql::shard
