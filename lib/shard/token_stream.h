// Declares token sinks, and reads and writes the token stream between the tools. ql-token-stream(5)
// describes the format of the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/stream.h"
#include "shard/manifest.h"

namespace ql::shard {

// A sink takes tokens and document boundaries, and writes, for example, a stream, a packed folder
// or plain ids.

// A ByteSink takes bytes, for standard output or memory.
using ByteSink = std::function<void(const void* data, std::size_t size)>;

// A TokensDone function is called with the number of tokens done until now.
using TokensDone = std::function<void(std::int64_t tokens)>;

// Every sink implements write(); the other functions do nothing by default.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Makes the next token the first of a document. The first token of all begins a document without
  // this call. A second call before the next token has no effect, because documents without tokens
  // do not exist.
  virtual void begin_document() {}
  // Ids must be below the vocabulary's size. Sinks that check this throw std::logic_error or Error.
  virtual void write(const TokenId* ids, std::size_t count) = 0;
  // Passes buffered tokens on, for producers whose reader should not wait for a full block.
  virtual void flush() {}
  // Completes the output. The output is not valid before this function returns.
  virtual void finish(const std::optional<TextCounts>& /*counts*/) {}
};

// Sends ids to `sink`. A document begins at each of `starts`: ascending offsets into the ids, the
// last of which may be `count`.
template <typename Starts>
void send_tokens(const TokenId* ids, std::size_t count, const Starts& starts, TokenSink& sink) {
  std::size_t sent = 0;
  for (const std::size_t start : starts) {
    sink.write(ids + sent, start - sent);
    sink.begin_document();
    sent = start;
  }
  sink.write(ids + sent, count - sent);
}

// The writer and the reader share these constants of ql-token-stream(5). Stored streams depend on
// the constants, so do not change them.

constexpr std::string_view kStreamMagic = "QLTOKENS";
constexpr std::uint32_t kStreamVersion = 1;
constexpr std::size_t kLargestStreamHeader = std::size_t{1} << 20;
constexpr std::size_t kLargestBlockPayload = std::size_t{16} << 20;
constexpr std::uint32_t kLargestBlockTokens = 1U << 20;
constexpr std::size_t kLargestVocabularyText = std::size_t{1} << 30;

constexpr std::string_view kVocabularyBlock = "VOCB";
constexpr std::string_view kDataBlock = "DATA";
constexpr std::string_view kEndBlock = "ENDS";

// The token stream flows through the pipe between the tools. ql-token-stream(5) describes its
// bytes: a self-describing header, blocks with their own length and checksum, document starts, and
// an end block with totals. From the end block a reader knows that the stream is complete.
struct StreamHeader {
  VocabularyInfo vocabulary;
  std::string vocabulary_text;  // the vocabulary's complete file; may be ""
  Json provenance;
};

// Returns a sink that writes a token stream. The sink's finish() writes the buffered tokens and the
// end block; without an end block readers report that the producer did not finish. Throws Error
// when vocabulary_text exceeds kLargestVocabularyText, or when the provenance makes the header
// longer than 1 MiB. The result of provenance() (base/provenance.h) is always short enough.
std::unique_ptr<TokenSink> make_stream_writer(ByteSink sink, const StreamHeader& header);

// Returns true for "-", a pipe, and a file that begins like a token stream; false for a packed
// folder and for its manifest.
bool names_stream(const std::string& path);

class TokenStreamReader {
 public:
  // Reads and checks the header and the vocabulary. Throws FormatError for an input that is not a
  // token stream, for another version, and on damage.
  explicit TokenStreamReader(InputFile& input);
  ~TokenStreamReader();
  const StreamHeader& header() const;

  struct Block {
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> document_starts;  // offsets into ids, ascending
  };
  // Reads the next block of tokens. Returns false at the end block, after its totals were checked.
  // Throws FormatError on damage and for an input without an end block ("the producer did not
  // finish").
  bool next(Block& block);

  // These functions return the totals of the end block; call them only after next() has returned
  // false.
  std::int64_t tokens() const;
  const std::optional<TextCounts>& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sends the complete stream to `sink` and calls `done` after each block. Does not call finish() of
// the sink. When the function returns, the stream has been checked to its end.
void copy_stream(TokenStreamReader& stream, TokenSink& sink, const TokensDone& done);

}  // namespace ql::shard
