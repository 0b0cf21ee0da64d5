// Reads a tool's data from a file, a pipe or standard input, decompresses it, and checks its kind.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/file_kind.h"
#include "base/stream.h"

namespace ql {

class Decompressor;

// Reads data, and decompresses gzip and zstd. base/stream.h documents the functions that have the
// same names in InputFile. Throws FormatError for damaged gzip or zstd data, and for a file,
// compressed or not, that does not have the expected content (base/file_kind.h). The first read
// examines the file's first bytes and waits until a pipe has delivered enough of them. With
// Content::kAnything every file is accepted and passed on unchanged.
class DataInput {
 public:
  DataInput(const std::string& path, Content expected);
  // Keeps a reference to `file`. Nothing may have been read from the file before.
  DataInput(InputFile& file, Content expected);
  ~DataInput();
  std::size_t read(void* data, std::size_t size);
  std::size_t read_what_comes(void* data, std::size_t size);
  bool has_more() const;
  bool is_pipe() const { return file_.is_pipe(); }
  const std::string& name() const { return file_.name(); }
  // Returns the first bytes of the content, at most kHeadBytes. read() returns them again.
  std::string_view head();

 private:
  void look();
  void fill_head();
  std::size_t next_bytes(char* data, std::size_t size);
  bool load();
  std::size_t take_head(char* data, std::size_t size);

  std::unique_ptr<InputFile> own_;
  InputFile& file_;
  Content expected_;
  bool looked_ = false;
  std::unique_ptr<Decompressor> decompressor_;  // null for a file that is passed on unchanged
  std::string head_;                            // the first bytes of the content
  std::string_view head_left_;                  // the part of head_ not read yet
  std::string packed_;                          // bytes of the compressed file
  std::string_view packed_left_;                // the part of packed_ not decompressed yet
  bool more_inside_ = false;                    // the decompressor may have content left
};

// Returns everything that a DataInput reads from `path`. Throws Error for more than `limit` bytes
// of content.
std::string read_content(const std::string& path, Content expected, std::int64_t limit);

}  // namespace ql
