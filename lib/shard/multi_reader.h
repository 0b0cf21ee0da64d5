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

// Parses "A:B". A missing A is 0, a missing B is `total`, and a negative A or B counts back from
// `total`; numbers are those of parse_integer() (base/strings.h). Throws UsageError for a string
// that is wrong for every `total`, such as "5", "5:3" or "-2:-4". Throws Error for a range that is
// wrong for this `total`: it reaches below 0 or beyond `total`, or A exceeds B, as in "5:-5" if
// `total` is 8. `option` and `unit` ("tokens") are for messages.
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
  // Returns the vocabulary's file from the first folder that has one, or "" if none has one. Throws
  // FormatError when this file is damaged.
  std::string vocabulary_text() const;
  // Returns the data hash of a single folder, or a hash of the data hashes of several folders.
  std::string hash() const;
  // Returns the sums of the text counts over all folders, or nothing when one folder has no counts.
  // Throws an Error that names the folder when a sum exceeds 64 bits.
  std::optional<TextCounts> counts() const;
  // Returns a header with the data's vocabulary, the vocabulary's file from the first folder that
  // has one, and the provenance of this run with the folders' provenance as "input". Throws
  // FormatError when the vocabulary's file of any folder is damaged.
  StreamHeader header(const Json& configuration) const;
  const std::deque<TokenReader>& folders() const { return readers_; }
  // Returns the manifests' unknown keys (ql-manifest(5)) with their values. Leaves out a key if two
  // folders have different values of it. Throws Error when the folders together have more unknown
  // keys than a manifest may have.
  Json unknown_keys() const;

  // Returns the range of tokens that a range of documents has. Reads the document starts up to the
  // end of this range. Throws std::out_of_range for documents outside the data.
  TokenRange tokens_of_documents(TokenRange documents) const;
  // Calls use(tokens) with the number of tokens of each document, in order. Reads the starts of the
  // documents piece by piece, to save memory.
  void for_each_document(const std::function<void(std::int64_t tokens)>& use) const;

  // Returns the positions where documents start, ascending; the first is 0 (empty data has none).
  // The first call reads all positions and keeps them in memory, with 8 bytes each.
  // DocumentStartsReader (shard/document_starts.h) needs less memory: it holds one piece at a time.
  const std::vector<std::int64_t>& document_starts() const;

  // Does the same as TokenReader::read(), for the tokens of all folders. A folder that no cursor
  // reads any more is closed, because many open folders would exceed a process's limit of open
  // files.
  void read(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor = 0);
  // Returns TokenReader::frame_bytes() of the first folder that has tokens. The parts of a corpus
  // are usually packed with the same frame size.
  std::int64_t frame_bytes();

  // Sends the tokens and the document starts of a range to `sink`, while `threads` threads decode
  // the following frames. A document begins at the first token of each folder. Does not call
  // finish() of the sink. Throws std::out_of_range outside the data.
  void copy(TokenRange range, int threads, TokenSink& sink, const TokensDone& done);

 private:
  void move_cursor(std::size_t cursor, std::size_t folder);

  std::deque<TokenReader> readers_;
  std::vector<std::int64_t> begins_;  // position of each folder's first token, then tokens_
  std::int64_t tokens_ = 0, documents_ = 0;
  mutable std::optional<std::vector<std::int64_t>> document_starts_;
  // folder_of_cursor_ has, for each cursor, the folder of the cursor's last read().
  // cursors_in_folder_ has, for each folder, the number of cursors whose last read() was there.
  std::vector<std::size_t> folder_of_cursor_, cursors_in_folder_;
};

}  // namespace ql::shard
