// Makes right what a mutation has broken without need: checksums, so that fuzzing reaches what lies
// behind them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ql::fuzz {

// The zstd frames of a file, one after the other; what is no frame, and all behind it, as one more.
std::vector<std::string> split_frames(std::string_view file);

// The frame with the checksum of its content, if it has a place for one and can be decompressed.
std::string repaired_frame(std::string frame);

// The content's size as the frame states it; 0 when it states none.
std::size_t stated_size(std::string_view frame);

// The checksum of the content, 0 when the frame cannot be decompressed.
std::uint32_t content_checksum(std::string_view frame);

// A token stream with right checksums of header and blocks, and the right hash of its ids in the
// end block. Stops where a block's length cannot be right.
std::string repaired_stream(std::string stream);

// Replaces the text behind `"key": "` as far as it has hexadecimal digits; nothing without the key.
void replace_hash(std::string& json, std::string_view key, const std::string& hash);

}  // namespace ql::fuzz
