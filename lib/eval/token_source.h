// Lets the evaluators read tokens at any place of some store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ql::eval {

struct TokenSource {
  std::string name;         // for messages
  std::int64_t tokens = 0;  // positions are 0 .. tokens-1
  // Copies tokens [begin, begin + count) to out. `cursor` names one of several independent places
  // of reading, as in shard::JoinedData. Throws std::out_of_range outside the stream.
  std::function<void(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor)>
      read;
  // Returns the ascending positions where documents start. It is called for networks that reset
  // their memory there, which cannot be evaluated without it.
  std::function<const std::vector<std::int64_t>&()> document_starts = {};
  // Returns the bytes that each cursor keeps; undefined: none.
  std::function<std::int64_t()> cursor_bytes = {};
};

}  // namespace ql::eval
