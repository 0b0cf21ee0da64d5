#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "foreign/id_width_internal.h"

namespace ql::foreign {

namespace {

using shard::TokenId;

// Fewer ids may be so by chance; more would only cost time.
constexpr std::size_t kFewestIds = 4, kMostIds = 4096;

// True when nearly all ids are small but every `step`-th, from the first on: they may be the upper
// parts of wider ids. The largest vocabularies in use have some 260,000 entries.
bool is_sparse(const TokenId* ids, std::size_t count, std::size_t step) {
  if (count < 2 * step) return false;
  constexpr std::size_t kEnough = 256;  // fewer ids may be small by chance
  const TokenId largest_upper = count < kEnough ? 0 : 3;
  std::size_t upper = 0, small = 0;
  bool all_small = true;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_small = ids[i] <= largest_upper;
    all_small = all_small && is_small;
    if (i % step == 0) continue;
    ++upper;
    small += is_small ? 1 : 0;
  }
  return !all_small && (count < kEnough ? small == upper : small * 20 >= upper * 19);
}

// True when all ids of 2 bytes are in the vocabulary; `low` is the index of an id's lower byte.
bool are_u16(std::string_view bytes, std::size_t low, std::int64_t vocabulary_size) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const int id = static_cast<unsigned char>(bytes[i + low]) |
                   static_cast<unsigned char>(bytes[i + 1 - low]) << 8;
    if (id >= vocabulary_size) return false;
  }
  return true;
}

}  // namespace

void check_width(int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                 const WidthOptions& options) {
  if (bytes_per_id > 2 || !exceeds_u16(vocabulary)) return;
  throw UsageError(
      options.u16,
      fmt::format("u16 ids cannot name the {} entries of the vocabulary", vocabulary.size),
      fmt::format("give {} if the ids have 4 bytes, or the vocabulary that they were made with",
                  options.u32));
}

void warn_of_wider_ids(const std::string& name, int bytes_per_id, const TokenId* ids,
                       std::size_t count, const WidthOptions& options) {
  count = std::min(count, kMostIds);
  if (count < kFewestIds || !is_sparse(ids, count, 2)) return;
  bool is_zero = true;
  for (std::size_t i = 1; i < count; i += 2) is_zero = is_zero && ids[i] == 0;
  const bool has_8_bytes = bytes_per_id == 4 || is_sparse(ids, count, 4);
  log_warning(
      "{}: every second of its first {} u{} ids is {}, as if ids had {} bytes; if they do, {}",
      name, with_thousands(static_cast<std::int64_t>(count)), 8 * bytes_per_id,
      is_zero ? "0" : "3 at most, or nearly so", has_8_bytes ? 8 : 4,
      has_8_bytes ? "pack them as text: od -A n -v -t d8 FILE | tr '\\n' ' ' | qlbin pack "
                    "--input ids"
                  : fmt::format("give {}", options.u32));
}

std::string foreign_id_advice(std::string_view bytes, int bytes_per_id,
                              std::int64_t vocabulary_size, const WidthOptions& options) {
  if (bytes_per_id == 2 && are_u16(bytes, 1, vocabulary_size)) {
    return "in big-endian order all are inside: swap the bytes of the file with dd conv=swab";
  }
  if (bytes_per_id == 4 && are_u16(bytes, 0, vocabulary_size)) {
    return fmt::format("as u16 ids all are inside: give {}", options.u16);
  }
  return fmt::format(
      "give the vocabulary of these ids, or its size (--vocab-size), or {} with their width",
      std::string_view(options.u16).substr(0, std::string_view(options.u16).find(' ')));
}

}  // namespace ql::foreign
