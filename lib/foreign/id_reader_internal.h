// A run of token ids in a file of another program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/random_access_file.h"
#include "shard/token_info.h"

namespace ql::foreign {

using shard::TokenId;

struct IdType {
  int bytes = 2;           // 1, 2, 4 or 8, little-endian
  bool is_signed = false;  // matters for 2 and 4
};

// The ids in a file that has no index beside it: they stand from a byte on to its end.
struct IdRun {
  std::int64_t offset = 0, tokens = 0;
  IdType type;
};

class IdReader {
 public:
  // Begins at byte `offset` of the file, which must outlive this object; `name` is for messages.
  // `plain`: the file has no header or index that says what its ids are.
  IdReader(const RandomAccessFile& file, std::string name, std::int64_t offset, IdType type,
           std::int64_t vocabulary_size, bool plain);
  // Calls use(ids, count) for the next `count` ids, some thousand at a time. FormatError for an id
  // outside the vocabulary and when the file ends before.
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

}  // namespace ql::foreign
