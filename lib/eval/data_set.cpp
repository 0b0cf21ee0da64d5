#include "eval/data_set.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "shard/joined_data.h"
#include "shard/token_stream.h"

namespace ql::eval {
namespace {

DataSet open_folder(const std::string& path) {
  const auto reader = std::make_shared<shard::JoinedData>(std::vector<std::string>{path});
  TokenSource source{path, reader->tokens(),
                     [reader](std::int64_t begin, std::int64_t count, std::int64_t* out,
                              std::size_t cursor) { reader->read(begin, count, out, cursor); },
                     [reader]() -> decltype(auto) { return reader->document_starts(); },
                     [reader] { return reader->frame_bytes(); }};
  return {path, reader->vocabulary(), reader->counts(), std::move(source), reader->hash()};
}

// Keeps the tokens of a stream in memory.
struct KeptStream : shard::TokenSink {
  void begin_document() override { starts.push_back(static_cast<std::int64_t>(ids.size())); }
  void write(const shard::TokenId* more, std::size_t count) override {
    ids.insert(ids.end(), more, more + count);
  }
  void finish(const std::optional<shard::TextCounts>&) override {}
  std::vector<shard::TokenId> ids;
  std::vector<std::int64_t> starts;
};

DataSet read_stream(const std::string& path) {
  InputFile input(path);
  shard::TokenStreamReader stream(input);
  const auto kept = std::make_shared<KeptStream>();
  copy_stream(stream, *kept, [](std::int64_t) {});
  TokenSource source{
      input.name(), stream.tokens(),
      [kept](std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t) {
        if (begin < 0 || count < 0 || begin > static_cast<std::int64_t>(kept->ids.size()) - count) {
          throw std::out_of_range("tokens outside the stream");
        }
        std::copy_n(kept->ids.begin() + begin, count, out);
      },
      [kept]() -> decltype(auto) { return (kept->starts); }};
  return {path, stream.header().vocabulary, stream.counts(), std::move(source)};
}

}  // namespace

DataSet open_data(const std::string& path) {
  return shard::names_stream(path) ? read_stream(path) : open_folder(path);
}

void warn_of_unknown_vocabulary(const std::string& silent, const std::string& other) {
  log_warning("{} does not say which vocabulary it was made with; {} is trusted to match it",
              silent, other);
}

void check_vocabulary(const std::string& trained_on,
                      const std::optional<shard::VocabularyInfo>& vocabulary, const DataSet& data) {
  if (!vocabulary || vocabulary->hash.empty() || data.vocabulary.hash.empty()) {
    const bool data_is_silent = data.vocabulary.hash.empty();
    warn_of_unknown_vocabulary(data_is_silent ? data.name : trained_on,
                               data_is_silent ? trained_on : data.name);
    return;
  }
  if (vocabulary->hash != data.vocabulary.hash) {
    throw Error(data.name,
                fmt::format("made with another vocabulary ({}) than {} ({})",
                            describe(data.vocabulary), trained_on, describe(*vocabulary)),
                "encode the text with the vocabulary of the training data (qltok encode --vocab)");
  }
}

}  // namespace ql::eval
