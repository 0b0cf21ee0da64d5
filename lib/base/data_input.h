// Reads the data of a tool from a file, a pipe or standard input, after one look at what it is.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/file_kind.h"

namespace ql {

class Decompressor;

// Reads like InputFile, which has the contract of the functions. Unpacks gzip and zstd, and refuses
// with a FormatError what is not the expected content (base/file_kind.h), in packed files, too.
// The look comes with the first read, which waits until a pipe has delivered enough for it.
// Content::kAnything passes every file on as it is.
class DataInput {
 public:
  DataInput(const std::string& path, Content expected);
  // Keeps a reference to the file, from which nothing may have been read.
  DataInput(InputFile& file, Content expected);
  ~DataInput();
  std::size_t read(void* data, std::size_t size);
  std::size_t read_fully(void* data, std::size_t size);
  std::size_t read_what_comes(void* data, std::size_t size);
  bool has_more() const;
  bool is_pipe() const { return file_.is_pipe(); }
  const std::string& name() const { return file_.name(); }
  // The first bytes of the content, kHeadBytes at most. They will be read again.
  std::string_view head();

 private:
  void look();
  void look_inside();
  std::size_t unpack(char* data, std::size_t size);
  bool load();
  std::size_t take_head(char* data, std::size_t size);

  std::unique_ptr<InputFile> own_;
  InputFile& file_;
  Content expected_;
  bool looked_ = false;
  std::unique_ptr<Decompressor> decompressor_;  // none for a file that is read as it is
  std::string head_;                            // of the content
  std::string_view head_left_;                  // was not read yet
  std::string packed_;                          // of the file
  std::string_view packed_left_;                // was not unpacked yet
  bool more_inside_ = false;                    // the decompressor may have content left
};

// Reads all of a file, unpacked. A content above `limit` bytes is an Error.
std::string read_content(const std::string& path, Content expected, std::int64_t limit);

}  // namespace ql
