// The token stream: what flows through the pipe between the tools. ql-token-stream(5) has the
// bytes. A self-describing header, blocks with their own length and checksum, document starts, and
// an end block with totals: a producer that dies can never be mistaken for one that finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "shard/token_info.h"
#include "shard/token_sink.h"

namespace ql::shard {

struct StreamHeader {
  VocabularyInfo vocabulary;
  std::string
      vocabulary_text;  // the vocabulary file itself, so that data explains itself; may be ""
  Json provenance;
};

class TokenStreamWriter : public TokenSink {
 public:
  // Throws Error for a provenance of more than a megabyte; that of base/provenance.h is shorter.
  TokenStreamWriter(ByteSink sink, const StreamHeader& header);
  ~TokenStreamWriter() override;
  void begin_document() override;
  void write(const TokenId* ids, std::size_t count) override;
  void flush() override;
  // Writes what is buffered and the end block. Without it readers report a producer that died.
  void finish(const std::optional<TextCounts>& counts) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// True for "-", a pipe, and a file that begins as a token stream does: not a packed folder or what
// names one.
bool names_stream(const std::string& path);

class TokenStreamReader {
 public:
  // Reads and checks the header. Throws FormatError ("not a token stream", version, checksum).
  explicit TokenStreamReader(InputFile& input);
  ~TokenStreamReader();
  const StreamHeader& header() const;

  struct Block {
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> document_starts;  // offsets into ids, ascending
  };
  // False after the end block, which is then checked against what was read. Throws FormatError on
  // damage and on an input that ends without an end block ("the producer did not finish").
  bool next(Block& block);

  // Totals of the end block; only after next() returned false.
  std::int64_t tokens() const;
  std::int64_t documents() const;
  const std::optional<TextCounts>& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sends the whole stream to `sink`, calls `done` after each block, and finishes neither: the stream
// has been checked to its end when this returns.
void copy_stream(TokenStreamReader& stream, TokenSink& sink, const TokensDone& done);

}  // namespace ql::shard
