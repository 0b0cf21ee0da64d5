// Ids that are read in the wrong width or byte order are numbers, too, and often all of them belong
// to the vocabulary. Here is what can be seen of that, for inputs without a header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shard/token_info.h"

namespace ql::foreign {

// More entries than u16 ids can name.
inline bool exceeds_u16(const shard::VocabularyInfo& vocabulary) {
  return vocabulary.bytes_per_id() > 2;
}

// How a tool is asked for plain ids of 2 or 4 bytes: for messages.
struct WidthOptions {
  const char *u16, *u32;
};
constexpr WidthOptions kImportWidths = {"--format nanogpt", "--format u32"};

// Throws UsageError for ids of 2 bytes and a vocabulary that exceeds them: ids above 65,535 were
// stored modulo 65,536, or the ids have another width.
void check_width(int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                 const WidthOptions& options);

// Logs a warning when the first ids of the input look like wider ones: in little-endian, every
// second number is 0 then.
void warn_of_wider_ids(const std::string& name, int bytes_per_id, const shard::TokenId* ids,
                       std::size_t count, const WidthOptions& options);

// Returns what to do about an id outside the vocabulary among these `bytes`: it says so when ids of
// 2 bytes, or of 2 bytes in big-endian order, would all be inside.
std::string foreign_id_advice(std::string_view bytes, int bytes_per_id,
                              std::int64_t vocabulary_size, const WidthOptions& options);

}  // namespace ql::foreign
