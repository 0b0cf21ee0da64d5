// Shared by the tests of lib/shard and lib/interop: data as a plain list of documents, which is the
// oracle, and ways to write and read it.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/stream.h"
#include "shard/document_starts.h"
#include "shard/pack_writer.h"
#include "shard/token_reader.h"
#include "shard/token_stream.h"
#include "unit/complaint.h"
#include "unit/scratch.h"

namespace ql::shard::test {

using ql::test::complaint;
using Documents = std::vector<std::vector<TokenId>>;

inline Documents random_documents(std::size_t tokens, std::int64_t vocabulary, unsigned seed,
                                  std::size_t longest = 20) {
  std::mt19937_64 random(seed);
  Documents documents;
  while (tokens > 0) {
    const std::size_t length = std::min(tokens, 1 + random() % longest);
    documents.emplace_back();
    for (std::size_t i = 0; i < length; ++i) {
      documents.back().push_back(
          static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocabulary)));
    }
    tokens -= length;
  }
  return documents;
}

inline std::vector<std::int64_t> all_ids(const Documents& documents) {
  std::vector<std::int64_t> ids;
  for (const auto& document : documents) ids.insert(ids.end(), document.begin(), document.end());
  return ids;
}

inline std::vector<std::int64_t> all_starts(const Documents& documents) {
  std::vector<std::int64_t> starts;
  std::int64_t position = 0;
  for (const auto& document : documents) {
    starts.push_back(position);
    position += static_cast<std::int64_t>(document.size());
  }
  return starts;
}

inline StreamHeader header_of(std::int64_t vocabulary, const std::string& text = "") {
  StreamHeader header;
  header.vocabulary.size = vocabulary;
  header.vocabulary.hash = "0123456789abcdef0123456789abcdef";
  header.vocabulary.type = "word";
  header.vocabulary.eos = 0;
  header.vocabulary_text = text;
  header.provenance = Json{{"tool", "test"}};
  return header;
}

inline void send(const Documents& documents, TokenSink& sink) {
  for (const auto& document : documents) {
    sink.begin_document();
    sink.write(document.data(), document.size());
  }
}

const TextCounts kSomeCounts{100, 90, 20, 4, 1};

inline std::string stream_of(const Documents& documents, const StreamHeader& header,
                             const std::optional<TextCounts>& counts = kSomeCounts) {
  std::string bytes;
  const auto writer = make_stream_writer(
      [&](const void* data, std::size_t size) {
        bytes.append(static_cast<const char*>(data), size);
      },
      header);
  send(documents, *writer);
  writer->finish(counts);
  return bytes;
}

// Keeps the documents that it is sent.
class ListSink : public TokenSink {
 public:
  void begin_document() override { begins_ = true; }
  void write(const TokenId* ids, std::size_t count) override {
    if (count == 0) return;
    if (begins_) documents.emplace_back();
    begins_ = false;
    documents.back().insert(documents.back().end(), ids, ids + count);
  }
  Documents documents;

 private:
  bool begins_ = true;
};

struct StreamContent {
  StreamHeader header;
  Documents documents;
  std::optional<TextCounts> counts;
};

// Replaces a file's content in place: thousands of times, without waiting for the disk.
inline void overwrite(const fs::path& path, const std::string& text) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  const bool done =
      ::pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
      ::ftruncate(descriptor, static_cast<off_t>(text.size())) == 0;
  ::close(descriptor);
  if (!done) throw std::runtime_error("cannot overwrite " + path.string());
}

// Reads the bytes as a stream from a file `scratch`/stream.
inline StreamContent read_stream(const ql::test::ScratchFolder& scratch, const std::string& bytes) {
  overwrite(scratch / "stream", bytes);
  InputFile input((scratch / "stream").string());
  TokenStreamReader reader(input);
  ListSink sink;
  copy_stream(reader, sink, [](std::int64_t) {});
  return {reader.header(), sink.documents, reader.counts()};
}

inline Manifest pack(const fs::path& folder, const Documents& documents, const StreamHeader& header,
                     const PackOptions& options = {}) {
  PackWriter writer(folder, header, options);
  send(documents, writer);
  writer.finish(kSomeCounts);
  return writer.manifest();
}

inline std::vector<std::int64_t> read_document_starts(const PackedFolder& place,
                                                      const Manifest& manifest) {
  std::vector<std::int64_t> all;
  for (DocumentStartsReader starts(place, manifest); !starts.ended(); starts.pass()) {
    all.push_back(starts.next());
  }
  return all;
}

inline std::vector<std::int64_t> read_all(TokenReader& reader) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(reader.tokens()));
  reader.read(0, reader.tokens(), ids.data());
  return ids;
}

// Returns the starts as documents.zst has them: little-endian u64.
inline std::string encode_document_starts(const std::vector<std::int64_t>& starts) {
  std::string bytes(starts.size() * 8, '\0');
  for (std::size_t i = 0; i < starts.size(); ++i) {
    store_little_endian(&bytes[i * 8], static_cast<std::uint64_t>(starts[i]));
  }
  return bytes;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ql::shard::test
