// Token ids as bytes: u16 or u32, little-endian, as in the blocks of a stream and in the frames of
// a shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shard/token_info.h"

namespace ql::shard {

// True where ids of 4 bytes stand in memory as they do in a file.
constexpr bool kIdsAreBytes = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

// Appends `count` ids with `bytes_per_id` (2 or 4) bytes each.
void append_ids(std::string& bytes, const TokenId* ids, std::size_t count, int bytes_per_id);

// Replaces `ids` by those in `size` bytes; `size` must be a multiple of bytes_per_id.
void decode_ids(const void* bytes, std::size_t size, int bytes_per_id, std::vector<TokenId>& ids);

// Index of the first id that is not below `vocabulary_size`, or -1.
std::int64_t first_foreign_id(const TokenId* ids, std::size_t count, std::int64_t vocabulary_size);
// Says the same in words; "" when there is none. `position` is that of ids[0] in the data.
std::string foreign_id(const std::vector<TokenId>& ids, std::int64_t position,
                       std::int64_t vocabulary_size);

}  // namespace ql::shard
