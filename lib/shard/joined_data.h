// Several packed folders read as one sequence of tokens.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shard/token_reader.h"
#include "shard/token_sink.h"
#include "shard/token_stream.h"

namespace ql::shard {

// Half open: [begin, end).
struct TokenRange {
  std::int64_t begin = 0, end = 0;
};

// "A:B"; a missing A is 0, a missing B is `total`, and with a '-' they count back from there; units
// as in base/number.h. UsageError when it is no range, Error when it reaches beyond the `total` or,
// with one end that counts back, ends before it begins. `option` and `unit` ("tokens") are for
// messages.
TokenRange parse_range(const std::string& text, std::int64_t total, const std::string& option,
                       const std::string& unit);

class JoinedData {
 public:
  // Throws Error when the vocabularies differ. Reads the manifests only.
  explicit JoinedData(const std::vector<std::string>& folders);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  // The sums over all folders; absent when one of them does not know. Throws Error, which names the
  // folder, when they are more than 64 bits hold.
  std::optional<TextCounts> counts() const;
  // Vocabulary of the data, its text from the first folder that has it, provenance of this run with
  // the folders' as "input". Throws FormatError when any folder's text is damaged.
  StreamHeader header(const Json& configuration) const;
  const std::deque<TokenReader>& folders() const { return readers_; }
  // Unknown manifest keys on which all folders that have them agree. Throws Error when the folders
  // have more keys together than a manifest may have.
  Json unknown_keys() const;

  // The tokens of a range of documents. Reads the document starts before it.
  TokenRange tokens_of_documents(TokenRange documents) const;
  // Calls use(tokens) with the length of each document, in their order. Keeps none in memory.
  void for_each_document(const std::function<void(std::int64_t tokens)>& use) const;

  // Sends a range of tokens to `sink`, with the document starts in it, while `threads` threads
  // decode what follows. Each folder begins a document. Does not finish the sink.
  void copy(TokenRange range, int threads, TokenSink& sink, const TokensDone& done);

 private:
  std::int64_t token_of_document(std::int64_t document) const;

  std::deque<TokenReader> readers_;
  std::int64_t tokens_ = 0, documents_ = 0;
};

}  // namespace ql::shard
