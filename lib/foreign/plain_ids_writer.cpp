#include <utility>

#include "base/error.h"
#include "foreign/plain_ids.h"
#include "shard/id_codec.h"

namespace ql::foreign {

TextIdWriter::TextIdWriter(shard::ByteSink sink) : sink_(std::move(sink)) {}

void TextIdWriter::begin_document() { line_begins_ = true; }

void TextIdWriter::write(const shard::TokenId* ids, std::size_t count) {
  if (count == 0) return;
  std::string text;
  text.reserve(count * 6);
  for (std::size_t i = 0; i < count; ++i) {
    if (!line_begins_) text += ' ';
    if (line_begins_ && !empty_) text += '\n';
    line_begins_ = empty_ = false;
    const fmt::format_int digits(ids[i]);
    text.append(digits.data(), digits.size());
  }
  sink_(text.data(), text.size());
}

void TextIdWriter::finish(const std::optional<shard::TextCounts>& /*counts*/) {
  if (!empty_) sink_("\n", 1);
}

RawIdWriter::RawIdWriter(shard::ByteSink sink, int bytes_per_id,
                         const shard::VocabularyInfo& vocabulary)
    : sink_(std::move(sink)), bytes_per_id_(bytes_per_id) {
  if (bytes_per_id < vocabulary.bytes_per_id()) {
    throw Error(
        "", fmt::format("ids of a vocabulary with {} entries do not fit into u16", vocabulary.size),
        "use u32");
  }
}

void RawIdWriter::begin_document() {}

void RawIdWriter::write(const shard::TokenId* ids, std::size_t count) {
  if (shard::kIdsAreBytes && bytes_per_id_ == sizeof(shard::TokenId)) {
    sink_(ids, count * sizeof(shard::TokenId));
    return;
  }
  bytes_.clear();
  shard::append_ids(bytes_, ids, count, bytes_per_id_);
  sink_(bytes_.data(), bytes_.size());
}

void RawIdWriter::finish(const std::optional<shard::TextCounts>& /*counts*/) {}

std::unique_ptr<shard::TokenSink> make_token_writer(const std::string& format, shard::ByteSink sink,
                                                    const shard::StreamHeader& header) {
  if (format == "stream") {
    return std::make_unique<shard::TokenStreamWriter>(std::move(sink), header);
  }
  if (format == "ids") return std::make_unique<TextIdWriter>(std::move(sink));
  return std::make_unique<RawIdWriter>(std::move(sink), format == "u16" ? 2 : 4, header.vocabulary);
}

}  // namespace ql::foreign
