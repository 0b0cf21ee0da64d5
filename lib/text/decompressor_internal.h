// Takes the compression off text: gzip and zstd.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ql::text {

// Several members or frames one behind the other are one text, as for gzip and zstd themselves.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Writes up to `size` bytes of text and removes from `packed` what it took. Goes on until one of
  // the two is at its end; fewer bytes mean that nothing is left inside. Throws FormatError.
  virtual std::size_t unpack(std::string_view& packed, char* text, std::size_t size) = 0;
  // True where the text may end: behind a whole member or frame.
  virtual bool whole() const = 0;
  // "gzip" or "zstd".
  virtual const char* format() const = 0;
};

// No text in UTF-8 begins like gzip or zstd, so no option has to say that it is compressed.
constexpr std::size_t kMagicBytes = 4;
// True while the first bytes of a file, at most kMagicBytes, can become those of compressed text.
bool may_be_compressed(std::string_view head);
// Returns nothing for text that is not compressed. `name` of the file is for messages.
std::unique_ptr<Decompressor> make_decompressor(std::string_view head, const std::string& name);

}  // namespace ql::text
