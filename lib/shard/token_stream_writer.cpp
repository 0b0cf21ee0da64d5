#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/hash.h"
#include "base/little_endian.h"
#include "shard/id_codec.h"
#include "shard/token_stream.h"
#include "shard/token_stream_format.h"

namespace ql::shard {

namespace {

// Small enough that data keeps flowing through a pipe, large enough that checksums cost nothing.
constexpr std::size_t kTokensPerBlock = std::size_t{64} << 10;
constexpr std::size_t kVocabularyBytesPerBlock = std::size_t{1} << 20;

}  // namespace

struct TokenStreamWriter::State {
  ByteSink sink;
  VocabularyInfo vocabulary;
  int bytes_per_id = 2;
  std::uint64_t block_number = 0;
  std::string block;                           // on its way to the sink
  std::string ids;                             // of the block being filled, as bytes
  std::vector<std::uint32_t> document_starts;  // in the block being filled
  bool document_begins = true;                 // at the next token
  bool finished = false;
  StreamTotals totals;
  ContentHasher ids_hasher;

  std::string header_json(const Json& provenance) const {
    return Json{{"bytes_per_id", bytes_per_id},
                {"vocabulary", vocabulary_info_to_json(vocabulary)},
                {"provenance", provenance}}
        .dump();
  }

  void write_header(const StreamHeader& header) {
    const std::string json = header_json(header.provenance);
    if (json.size() > kLargestStreamHeader) {
      throw Error("token stream",
                  fmt::format("a header of {} bytes, more than the {} that are read", json.size(),
                              kLargestStreamHeader),
                  "give it a shorter provenance");
    }
    std::string bytes(kStreamMagic);
    append_little_endian(bytes, kStreamVersion);
    append_little_endian(bytes, static_cast<std::uint32_t>(json.size()));
    bytes += json;
    append_little_endian(bytes, xxh64(bytes.data(), bytes.size()));
    sink(bytes.data(), bytes.size());
  }

  void write_block(std::string_view type, std::string_view head, std::string_view rest = {}) {
    block = type;
    append_little_endian(block, static_cast<std::uint32_t>(head.size() + rest.size()));
    block += head;
    block += rest;
    append_little_endian(block, xxh64(block.data(), block.size(), block_number++));
    sink(block.data(), block.size());
  }

  std::size_t tokens_in_block() const {
    return ids.size() / static_cast<std::size_t>(bytes_per_id);
  }

  void write_vocabulary(std::string_view text) {
    if (text.size() > kLargestVocabularyText) {
      throw Error("token stream", fmt::format("the vocabulary file of {} bytes exceeds the limit "
                                              "of {}",
                                              text.size(), kLargestVocabularyText));
    }
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), kVocabularyBytesPerBlock))) {
      write_block(kVocabularyBlock, {}, text.substr(0, kVocabularyBytesPerBlock));
    }
  }

  void write_data() {
    if (ids.empty()) return;
    std::string head;
    append_little_endian(head, static_cast<std::uint32_t>(tokens_in_block()));
    append_little_endian(head, static_cast<std::uint32_t>(document_starts.size()));
    for (const std::uint32_t start : document_starts) append_little_endian(head, start);
    ids_hasher.update(ids.data(), ids.size());
    write_block(kDataBlock, head, ids);
    ids.clear();
    document_starts.clear();
  }
};

TokenStreamWriter::TokenStreamWriter(ByteSink sink, const StreamHeader& header)
    : state_(std::make_unique<State>()) {
  state_->sink = std::move(sink);
  state_->vocabulary = header.vocabulary;
  state_->bytes_per_id = header.vocabulary.bytes_per_id();
  if (header.vocabulary.size < 1) throw std::logic_error("token stream without a vocabulary size");
  state_->write_header(header);
  state_->write_vocabulary(header.vocabulary_text);
}

TokenStreamWriter::~TokenStreamWriter() = default;

void TokenStreamWriter::begin_document() { state_->document_begins = true; }

void TokenStreamWriter::write(const TokenId* ids, std::size_t count) {
  State& state = *state_;
  if (state.finished) throw std::logic_error("token stream written after its end");
  if (first_foreign_id(ids, count, state.vocabulary.size) >= 0) {
    throw std::logic_error("token id outside the vocabulary");
  }
  while (count > 0) {
    if (state.document_begins) {
      state.document_starts.push_back(static_cast<std::uint32_t>(state.tokens_in_block()));
      state.document_begins = false;
      ++state.totals.documents;
    }
    const std::size_t part = std::min(count, kTokensPerBlock - state.tokens_in_block());
    append_ids(state.ids, ids, part, state.bytes_per_id);
    state.totals.tokens += static_cast<std::int64_t>(part);
    ids += part;
    count -= part;
    if (state.tokens_in_block() == kTokensPerBlock) state.write_data();
  }
}

void TokenStreamWriter::flush() { state_->write_data(); }

void TokenStreamWriter::finish(const std::optional<TextCounts>& counts) {
  State& state = *state_;
  if (state.finished) throw std::logic_error("token stream finished twice");
  state.write_data();
  state.totals.ids_hash = state.ids_hasher.digest();
  state.totals.counts = counts;
  state.write_block(kEndBlock, stream_totals_to_json(state.totals).dump());
  state.finished = true;
}

}  // namespace ql::shard
