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

  // "data/a", or "data/a and 2 more": for messages.
  std::string name() const;
  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  const VocabularyInfo& vocabulary() const { return readers_.front().vocabulary(); }
  // From the first folder that has it; "" if none. Throws FormatError when it is damaged.
  std::string vocabulary_text() const;
  // That of the folder, or of several a hash of theirs.
  std::string hash() const;
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

  // These do what those of TokenReader do, over all folders. A folder that no cursor reads in any
  // more is closed: many would keep more files open than a process may have.
  const std::vector<std::int64_t>& document_starts() const;
  void read(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor = 0);
  // Those of the first folder that has tokens: parts of a corpus are packed alike.
  std::int64_t frame_bytes() const;

  // Sends a range of tokens to `sink`, with the document starts in it, while `threads` threads
  // decode what follows. Each folder begins a document. Does not finish the sink.
  void copy(TokenRange range, int threads, TokenSink& sink, const TokensDone& done);

 private:
  std::int64_t token_of_document(std::int64_t document) const;
  void move_cursor(std::size_t cursor, std::size_t folder);

  std::deque<TokenReader> readers_;
  std::vector<std::int64_t> begins_;  // position of each folder's first token, and their end
  std::int64_t tokens_ = 0, documents_ = 0;
  mutable std::optional<std::vector<std::int64_t>> document_starts_;
  // The folder that each cursor has read in last, and how many cursors each folder has.
  std::vector<std::size_t> folder_of_cursor_, cursors_in_folder_;
};

}  // namespace ql::shard
