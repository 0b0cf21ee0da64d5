#include "shard/id_codec.h"

#include <fmt/format.h>

#include <cstring>

#include "base/little_endian.h"

namespace ql::shard {

namespace {

template <typename Stored>
void append_as(std::string& bytes, const TokenId* ids, std::size_t count) {
  if (kIdsAreBytes && sizeof(Stored) == sizeof(TokenId)) {
    bytes.append(reinterpret_cast<const char*>(ids), count * sizeof(Stored));
    return;
  }
  const std::size_t end = bytes.size();
  bytes.resize(end + count * sizeof(Stored));
  char* out = bytes.data() + end;
  for (std::size_t i = 0; i < count; ++i) {
    store_little_endian(out + i * sizeof(Stored), static_cast<Stored>(ids[i]));
  }
}

template <typename Stored>
void decode_as(const char* bytes, std::vector<TokenId>& ids) {
  if (kIdsAreBytes && sizeof(Stored) == sizeof(TokenId)) {
    if (!ids.empty()) std::memcpy(ids.data(), bytes, ids.size() * sizeof(Stored));
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = load_little_endian<Stored>(bytes + i * sizeof(Stored));
  }
}

}  // namespace

void append_ids(std::string& bytes, const TokenId* ids, std::size_t count, int bytes_per_id) {
  if (bytes_per_id == 2) {
    append_as<std::uint16_t>(bytes, ids, count);
  } else {
    append_as<std::uint32_t>(bytes, ids, count);
  }
}

void decode_ids(const void* bytes, std::size_t size, int bytes_per_id, std::vector<TokenId>& ids) {
  ids.resize(size / static_cast<std::size_t>(bytes_per_id));
  const auto* text = static_cast<const char*>(bytes);
  if (bytes_per_id == 2) {
    decode_as<std::uint16_t>(text, ids);
  } else {
    decode_as<std::uint32_t>(text, ids);
  }
}

std::int64_t first_foreign_id(const TokenId* ids, std::size_t count, std::int64_t vocabulary_size) {
  // Comparisons of signed numbers are vectorised on every x86-64 processor, those of unsigned ones
  // are not; a number with the highest bit is foreign to a smaller vocabulary. The search runs only
  // on damaged data.
  if (vocabulary_size <= INT32_MAX) {
    const auto size = static_cast<std::int32_t>(vocabulary_size);
    std::int32_t foreign = 0;
    TokenId bits = 0;
    for (std::size_t k = 0; k < count; ++k) {
      foreign |= static_cast<std::int32_t>(static_cast<std::int32_t>(ids[k]) >= size);
      bits |= ids[k];
    }
    if (foreign == 0 && bits <= INT32_MAX) return -1;
  }
  std::size_t i = 0;
  while (i < count && static_cast<std::int64_t>(ids[i]) < vocabulary_size) ++i;
  return i < count ? static_cast<std::int64_t>(i) : -1;
}

std::string foreign_id(const std::vector<TokenId>& ids, std::int64_t position,
                       std::int64_t vocabulary_size) {
  const std::int64_t foreign = first_foreign_id(ids.data(), ids.size(), vocabulary_size);
  if (foreign < 0) return "";
  return fmt::format("token {}: id {} is outside the vocabulary of {} entries", position + foreign,
                     ids[static_cast<std::size_t>(foreign)], vocabulary_size);
}

}  // namespace ql::shard
