// A file of text, compressed or not.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace ql::text {

class Decompressor;

// Reads as InputFile does, which has the contract of the functions, and unpacks what begins like
// gzip or zstd. Throws FormatError where packed text is damaged or cut off.
class TextInput {
 public:
  explicit TextInput(const std::string& path);
  ~TextInput();
  std::size_t read_what_comes(void* data, std::size_t size);
  bool has_more() const;
  bool is_pipe() const { return file_.is_pipe(); }
  const std::string& name() const { return file_.name(); }

 private:
  void look_at_head();
  std::size_t read_plain(char* text, std::size_t size);
  std::size_t unpack(char* text, std::size_t size);
  bool load();

  InputFile file_;
  bool opened_ = false;                         // the head was looked at
  std::unique_ptr<Decompressor> decompressor_;  // none for plain text
  std::string buffer_;                          // of the file; plain text: its head
  std::string_view left_;                       // the part of it that was not passed on yet
  bool more_inside_ = false;                    // the decompressor may have text left
};

}  // namespace ql::text
