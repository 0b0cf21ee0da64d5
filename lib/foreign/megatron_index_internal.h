// The index (.idx) beside Megatron's tokens (.bin): where sequences and documents are.
//
//   bytes      type  content
//   9          text  "MMIDIDX", two zeros
//   8          u64   version, 1
//   1          u8    type of the ids in .bin
//   8          u64   S, number of sequences
//   8          u64   D, number of document boundaries: documents + 1
//   4 * S      i32   tokens of each sequence
//   8 * S      i64   its first byte in .bin
//   8 * D      i64   boundaries: sequences before it, from 0 to S
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/random_access_file.h"
#include "foreign/id_reader_internal.h"
#include "foreign/number_array_internal.h"

namespace ql::foreign {

// Reads an index from front to back; nothing of it is kept.
class MegatronIndex {
 public:
  // Throws FormatError unless the file's size is what its header says. `data_bytes`: of the .bin.
  MegatronIndex(const std::filesystem::path& path, std::int64_t data_bytes);
  IdType type() const { return type_; }
  // The tokens of the next document, which may be 0; false behind the last, when the sequences have
  // been found to fill the data one after the other.
  bool next_document(std::int64_t& tokens);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  std::int64_t next_sequence();

  std::string name_;
  RandomAccessFile file_;
  IdType type_;
  std::int64_t sequences_ = 0, boundaries_ = 0, data_bytes_;
  NumberArray<std::uint32_t> lengths_;
  NumberArray<std::uint64_t> places_, documents_;
  std::int64_t sequence_ = 0, boundary_ = 0, position_ = 0;  // read so far; bytes in the data
};

// Calls use(document's tokens) for each document: as often as it is called.
using ForEachDocument = std::function<void(const std::function<void(std::int64_t tokens)>& use)>;

// Writes the index of documents that lie one after the other, each as one sequence, or several
// where it is longer than INT32_MAX. Goes through the documents four times, and
// keeps none in memory. `bytes_per_id`: 2 (u16) or 4 (i32).
void write_megatron_index(const ForEachDocument& for_each_document, int bytes_per_id,
                          BufferedFile& file);

}  // namespace ql::foreign
