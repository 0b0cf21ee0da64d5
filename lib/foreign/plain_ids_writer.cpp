#include <utility>

#include "base/error.h"
#include "foreign/plain_ids.h"
#include "shard/id_codec.h"

namespace ql::foreign {

namespace {

class TextIdWriter : public shard::TokenSink {
 public:
  explicit TextIdWriter(shard::ByteSink sink) : sink_(std::move(sink)) {}
  void begin_document() override { line_begins_ = true; }
  void write(const shard::TokenId* ids, std::size_t count) override {
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
  void finish(const std::optional<shard::TextCounts>& /*counts*/) override {
    if (!empty_) sink_("\n", 1);
  }

 private:
  shard::ByteSink sink_;
  bool line_begins_ = true, empty_ = true;
};

class RawIdWriter : public shard::TokenSink {
 public:
  RawIdWriter(shard::ByteSink sink, int bytes_per_id, const shard::VocabularyInfo& vocabulary)
      : sink_(std::move(sink)), bytes_per_id_(bytes_per_id) {
    if (bytes_per_id >= vocabulary.bytes_per_id()) return;
    throw Error(
        "", fmt::format("ids of a vocabulary with {} entries do not fit into u16", vocabulary.size),
        "use u32");
  }
  void begin_document() override {}
  void write(const shard::TokenId* ids, std::size_t count) override {
    if (shard::kIdsAreBytes && bytes_per_id_ == sizeof(shard::TokenId)) {
      sink_(ids, count * sizeof(shard::TokenId));
      return;
    }
    bytes_.clear();
    shard::append_ids(bytes_, ids, count, bytes_per_id_);
    sink_(bytes_.data(), bytes_.size());
  }
  void finish(const std::optional<shard::TextCounts>& /*counts*/) override {}

 private:
  shard::ByteSink sink_;
  int bytes_per_id_;
  std::string bytes_;
};

}  // namespace

std::unique_ptr<shard::TokenSink> make_token_writer(const std::string& format, shard::ByteSink sink,
                                                    const shard::StreamHeader& header) {
  if (format == "stream") {
    return std::make_unique<shard::TokenStreamWriter>(std::move(sink), header);
  }
  if (format == "ids") return std::make_unique<TextIdWriter>(std::move(sink));
  return std::make_unique<RawIdWriter>(std::move(sink), format == "u16" ? 2 : 4, header.vocabulary);
}

}  // namespace ql::foreign
