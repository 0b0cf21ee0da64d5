// Takes the compression off files: gzip and zstd.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/file_kind.h"

namespace ql {

// Several members or frames one after the other are one content, as for gzip and zstd themselves.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Writes up to `size` bytes of content and removes from `packed` the bytes that it took. Goes on
  // until one of the two is at its end; fewer bytes mean that nothing is left inside. Throws
  // FormatError.
  virtual std::size_t unpack(std::string_view& packed, char* content, std::size_t size) = 0;
  // True where the content may end: after a complete member or frame.
  virtual bool complete() const = 0;
  // "gzip" or "zstd".
  virtual const char* format() const = 0;
};

// Returns nothing for a kind that is not compressed. `name` of the file is for messages.
std::unique_ptr<Decompressor> make_decompressor(FileKind kind, const std::string& name);

}  // namespace ql
