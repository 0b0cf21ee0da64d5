// Reads several packed folders as one sequence of tokens.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shard/token_reader.h"
#include "shard/token_stream.h"

namespace ql::shard {

// Holds a half-open range [begin, end).
struct TokenRange {
  std::int64_t begin = 0, end = 0;
};

// Parses "A:B". A missing A is 0, a missing B is `total`, and with a '-' they count back from
// there; units as in base/strings.h. Throws UsageError for other texts, and Error when the range
// reaches beyond `total` or, with one end that counts back, ends before it begins. `option` and
// `unit` ("tokens") are for messages.
TokenRange parse_range(const std::string& text, std::int64_t total, const std::string& option,
                       const std::string& unit);

class MultiReader {
 public:
  // Reads the manifests only. Throws Error when the vocabularies differ.
  explicit MultiReader(const std::vector<std::string>& folders);

  // Returns "data/a", or "data/a and 2 more", for messages.
  std::string name() const;
  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  const VocabularyInfo& vocabulary() const { return readers_.front().vocabulary(); }
  // Returns the text from the first folder that has it, or "" if none has. Throws FormatError when
  // it is damaged.
  std::string vocabulary_text() const;
  // Returns the hash of the folder, or a hash of the hashes of several folders.
  std::string hash() const;
  // Returns the sums over all folders, or nothing when one folder has no counts. Throws Error that
  // names the folder when a sum exceeds 64 bits.
  std::optional<TextCounts> counts() const;
  // Returns a header with the data's vocabulary, its text from the first folder that has it, and
  // provenance of this run with the folders' provenance as "input". Throws FormatError when any
  // folder's text is damaged.
  StreamHeader header(const Json& configuration) const;
  const std::deque<TokenReader>& folders() const { return readers_; }
  // Returns the unknown manifest keys on which all folders that have them agree. Throws Error when
  // the folders together have more keys than a manifest may have.
  Json unknown_keys() const;

  // Returns the tokens of a range of documents. Reads the document starts before it.
  TokenRange tokens_of_documents(TokenRange documents) const;
  // Calls use(tokens) with the length of each document, in order. Keeps none in memory.
  void for_each_document(const std::function<void(std::int64_t tokens)>& use) const;

  // Returns the positions where documents start, ascending; the first is 0 (empty data has none).
  // They are read at the first call and kept, with 8 bytes each. document_starts.h has readers that
  // keep nothing.
  const std::vector<std::int64_t>& document_starts() const;

  // The following functions do the same as those of TokenReader, over all folders. A folder that no
  // cursor reads any more is closed: many would keep more files open than a process may have.
  void read(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor = 0);
  // Returns the value of the first folder that has tokens: parts of a corpus are packed alike.
  std::int64_t frame_bytes();

  // Sends a range of tokens to `sink`, with the document starts in it, while `threads` threads
  // decode the following frames. Each folder begins a document. Does not call finish() of the sink.
  void copy(TokenRange range, int threads, TokenSink& sink, const TokensDone& done);

 private:
  std::int64_t token_of_document(std::int64_t document) const;
  void move_cursor(std::size_t cursor, std::size_t folder);

  std::deque<TokenReader> readers_;
  std::vector<std::int64_t> begins_;  // position of each folder's first token, and their end
  std::int64_t tokens_ = 0, documents_ = 0;
  mutable std::optional<std::vector<std::int64_t>> document_starts_;
  // These are the folder that each cursor has read last, and the number of cursors in each folder.
  std::vector<std::size_t> folder_of_cursor_, cursors_in_folder_;
};

}  // namespace ql::shard
