// The numbers of ql-token-stream(5), shared by the writer and the reader. On disk: do not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shard/token_info.h"

namespace ql::shard {

constexpr std::string_view kStreamMagic = "QLTOKENS";
constexpr std::uint32_t kStreamVersion = 1;
constexpr std::size_t kLargestStreamHeader = std::size_t{1} << 20;
constexpr std::size_t kLargestBlockPayload = std::size_t{16} << 20;
constexpr std::uint32_t kLargestBlockTokens = 1U << 20;
constexpr std::size_t kLargestVocabularyText = std::size_t{1} << 30;

constexpr std::string_view kVocabularyBlock = "VOCB";
constexpr std::string_view kDataBlock = "DATA";
constexpr std::string_view kEndBlock = "ENDS";

// The end block says these.
struct StreamTotals {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::string ids_hash;
  std::optional<TextCounts> counts;
};
Json stream_totals_to_json(const StreamTotals& totals);
StreamTotals stream_totals_from_json(const JsonObject& json);

}  // namespace ql::shard
