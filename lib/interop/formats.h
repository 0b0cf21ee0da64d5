// Reads and writes the headers, indexes and ids of other programs' token files (llm.c, nanoGPT,
// Megatron).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/process.h"
#include "shard/manifest.h"

namespace ql::interop {

// The values of Format stand for the programs whose token files are read and written. kU32 is
// nanoGPT's layout with ids of 4 bytes.

enum class Format { kLlmc, kNanogpt, kMegatron, kU32 };
constexpr auto names_of(Format) { return std::array{"llmc", "nanogpt", "megatron", "u32"}; }

// Reads little-endian numbers of a file in order, through a small buffer.
template <typename Number>
class NumberArray {
 public:
  NumberArray() = default;
  // Reads `count` numbers from byte `offset` of the file, which must outlive this object.
  NumberArray(const RandomAccessFile& file, std::int64_t offset, std::int64_t count)
      : file_(&file), offset_(offset), left_(count) {}
  // Returns the next number. Call it at most `count` times.
  Number next() {
    if (at_ == buffer_.size()) fill();
    at_ += sizeof(Number);
    return load_little_endian<Number>(&buffer_[at_ - sizeof(Number)]);
  }

 private:
  void fill() {
    check_for_stop();
    constexpr std::int64_t kAtOnce = 8192;
    const std::int64_t count = std::min(left_, kAtOnce);
    if (count == 0) throw std::logic_error("more numbers asked for than the file has");
    buffer_.resize(static_cast<std::size_t>(count) * sizeof(Number));
    file_->read(offset_, buffer_.data(), buffer_.size());
    offset_ += static_cast<std::int64_t>(buffer_.size());
    left_ -= count;
    at_ = 0;
  }

  const RandomAccessFile* file_ = nullptr;
  std::int64_t offset_ = 0, left_ = 0;
  std::string buffer_;
  std::size_t at_ = 0;
};

// Ids that are read with the wrong width or byte order are often inside the vocabulary by chance.
// The following checks detect a wrong width or byte order in input without a header.

// Holds, for messages, the options that make a tool read plain ids of 2 or 4 bytes.
struct WidthOptions {
  const char *u16, *u32;
};
constexpr WidthOptions kImportWidths = {"--format nanogpt", "--format u32"};

// Throws UsageError if `bytes_per_id` is 2 and the vocabulary has more than 65,536 entries: then
// larger ids were stored modulo 65,536, or the ids have another width.
void check_width(int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                 const WidthOptions& options);

// Logs a warning when the first ids look like alternating lower and upper parts of wider ids:
// nearly all upper parts are then very small.
void warn_of_wider_ids(const std::string& name, int bytes_per_id, const shard::TokenId* ids,
                       std::size_t count, const WidthOptions& options);

// Returns advice for input of these `bytes` in which an id is outside the vocabulary. If reading
// the bytes as big-endian ids, or as ids of 2 bytes, gives only ids inside the vocabulary, the
// advice is to use this byte order or this width.
std::string outside_id_advice(std::string_view bytes, int bytes_per_id,
                              std::int64_t vocabulary_size, const WidthOptions& options);

// An IdType says how the ids of a file are stored.

using shard::TokenId;

struct IdType {
  int bytes = 2;           // 1, 2, 4 or 8, little-endian
  bool is_signed = false;  // matters for 2 and 4 bytes
};

// Describes the ids in a file without an index: `tokens` ids from byte `offset` to the end of the
// file.
struct IdRun {
  std::int64_t offset = 0, tokens = 0;
  IdType type;
};

class IdReader {
 public:
  // Reads from byte `offset` of the file, which must outlive this object. `name` is for messages.
  // `plain` is true for a file without header or index, whose type of ids is only assumed.
  IdReader(const RandomAccessFile& file, std::string name, std::int64_t offset, IdType type,
           std::int64_t vocabulary_size, bool plain);
  // Calls use(ids, count) for the next `count` ids, at most 65,536 at a time. Throws FormatError
  // for an id outside the vocabulary, and when the file ends before the last of these ids.
  using UseIds = std::function<void(const TokenId* ids, std::size_t count)>;
  void read(std::int64_t count, const UseIds& use);

 private:
  void decode();

  const RandomAccessFile& file_;
  std::string name_;
  std::int64_t offset_;
  IdType type_;
  std::int64_t vocabulary_size_;
  bool plain_;
  std::int64_t position_ = 0;  // ids read so far
  std::string bytes_;
  std::vector<TokenId> ids_;
};

// The header of llm.c's token files has 1,024 bytes: 256 i32, of which the first three are a magic
// number, a version and the number of tokens, and the others are 0.

// Throws FormatError for an unknown header, and for a file whose size contradicts its header.
// `name` is for messages.
IdRun read_llmc_header(const RandomAccessFile& file, const std::string& name);

// Returns the header of a file of `tokens` ids. `bytes_per_id` is 2 or 4.
std::string encode_llmc_header(int bytes_per_id, std::int64_t tokens);

// Megatron stores ids in a .bin file, and the bounds of sequences and documents in an index (.idx):
//
//   bytes      type  content
//   9          text  "MMIDIDX" and two zero bytes
//   8          u64   version, 1
//   1          u8    type of the ids in .bin
//   8          u64   S, number of sequences
//   8          u64   D, number of document boundaries: documents + 1
//   4 * S      i32   number of tokens of each sequence
//   8 * S      i64   byte offset of each sequence in .bin
//   8 * D      i64   number of sequences before each boundary, from 0 to S

// Reads an index from front to back and keeps none of it in memory.
class MegatronIndex {
 public:
  // Throws FormatError for an unknown header, and for a file whose size contradicts its header.
  // `data_bytes` is the size of .bin.
  MegatronIndex(const std::filesystem::path& path, std::int64_t data_bytes);
  IdType type() const { return type_; }
  // Stores the number of tokens of the next document, which may be 0, in `tokens`. Returns false
  // after the last document. Throws FormatError unless the documents fill .bin without gaps.
  bool next_document(std::int64_t& tokens);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void refuse_relatives(std::uint64_t size, std::uint64_t sequences,
                        std::uint64_t boundaries) const;
  std::int64_t next_sequence();

  std::string name_;
  RandomAccessFile file_;
  IdType type_;
  std::int64_t sequences_ = 0, boundaries_ = 0, data_bytes_;
  NumberArray<std::uint32_t> lengths_;
  NumberArray<std::uint64_t> places_, documents_;
  // sequence_ and boundary_ count what has been read so far. position_ is the byte offset in .bin
  // at which the last sequence ends.
  std::int64_t sequence_ = 0, boundary_ = 0, position_ = 0;
};

// Each call of a ForEachDocument calls use(number of tokens) for every document.
using ForEachDocument = std::function<void(const std::function<void(std::int64_t tokens)>& use)>;

// Writes the index of documents that follow each other without gaps. A document is one sequence, or
// several sequences if it has more than INT32_MAX tokens. Calls `for_each_document` four times and
// keeps no document in memory. `bytes_per_id` is 2 (u16) or 4 (i32).
void write_megatron_index(const ForEachDocument& for_each_document, int bytes_per_id,
                          NewFile& file);

}  // namespace ql::interop
