// Repairs checksums that a mutation has broken, so that fuzzing reaches the code after their
// checks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ql::fuzz {

// Returns the zstd frames of a file in order. The first bytes that are not a frame, and all after
// them, are one more element.
std::vector<std::string> split_frames(std::string_view file);

// Returns the frame with the checksum of its content, if it has room for one and can be
// decompressed.
std::string repaired_frame(std::string frame);

// Returns the content's size that the frame states, or 0 when it states none.
std::size_t stated_size(std::string_view frame);

// Returns the checksum of the content, or 0 when the frame cannot be decompressed.
std::uint32_t content_checksum(std::string_view frame);

// Returns a token stream with correct checksums of header and blocks, and the correct hash of its
// ids in the end block. Stops where a block's length cannot be right.
std::string repaired_stream(std::string stream);

// Replaces the hexadecimal digits after `"key": "`. Does nothing without the key.
void replace_hash(std::string& json, std::string_view key, const std::string& hash);

}  // namespace ql::fuzz
