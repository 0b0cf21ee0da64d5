// Opens the data of an evaluation, and finds the strings that its token ids stand for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shard/manifest.h"
#include "shard/multi_reader.h"

namespace ql::eval {

// Gives the evaluators access to the tokens at any position of packed data or of a stream.
struct TokenSource {
  std::string name;         // for messages
  std::int64_t tokens = 0;  // positions are 0 .. tokens-1
  // Copies tokens [begin, begin + count) to out. Throws std::out_of_range outside the stream.
  std::function<void(std::int64_t begin, std::int64_t count, std::int64_t* out)> read;
  // Returns the ascending positions where documents start. Only networks that reset their memory at
  // documents need this function; they cannot be evaluated without it.
  std::function<const std::vector<std::int64_t>&()> document_starts = {};
};

// Returns a source that reads packed data; `reader` must outlive the source.
TokenSource source_of(shard::MultiReader& reader);

// Holds the data of an evaluation: a packed folder, or a token stream.
struct DataSet {
  std::string name;  // as given: a folder, a file, or "-"
  shard::VocabularyInfo vocabulary;
  std::optional<shard::TextCounts> counts;  // of the complete text that the tokens encode
  TokenSource source;
  std::string hash = {};                            // of packed data (shard::TokenReader::hash())
  std::shared_ptr<shard::MultiReader> folder = {};  // null if `source` reads a stream
};

// `path` names a folder with a manifest, or a stream (shard::names_stream()). A stream is read
// completely here, checked up to its end block, and kept in memory (4 bytes per token), because
// several evaluations may read it. Throws FormatError for damaged data and for a stream whose
// producer did not finish.
DataSet open_data(const std::string& path);

// Returns true if `unknown` of `tokens` is several times `usual_share`: the text was probably not
// prepared like the one with the usual share, for example its punctuation was not split from words.
// Returns false for less than fifty unknown tokens or less than 5 %, which chance can explain.
bool has_many_unknown(std::int64_t unknown, std::int64_t tokens, double usual_share);

// Warns if many more tokens of the data are <unk> than of the text that its vocabulary was made
// from. `vocabulary_text` returns the content of the vocabulary file, or "". open_data() calls this
// function.
void warn_of_unknown_tokens(const DataSet& data,
                            const std::function<std::string()>& vocabulary_text);

// Calls shard::require_same_vocabulary(), because a result for tokens of another vocabulary has no
// meaning. `trained_on` names the model, or the training data of a unigram model, and `vocabulary`
// is what that records. evaluate() still checks every id.
void check_vocabulary(const std::string& trained_on, const shard::VocabularyInfo& vocabulary,
                      const DataSet& data);

// These functions read the strings of token ids without the SentencePiece library, because
// lib/CMakeLists.txt does not link that library into programs with LibTorch.

// Holds a string for each of the ids 0, 1, ...; empty if the strings are not known.
using TokenTexts = std::vector<std::string>;

// Returns the strings of the tokens in a vocabulary file. `vocabulary_text` is the content of the
// file; if it is empty, the result is empty. Pieces are returned in the form of shown_piece().
// Throws FormatError if a token is not a string.
TokenTexts read_token_texts(const std::string& vocabulary_text);
// Decodes the escapes of ql-vocabulary(5) in a piece. Then replaces each byte that is not part of
// valid UTF-8 by a text such as <0xC3>.
std::string shown_piece(const std::string& piece);
// Does the same as read_token_texts(), but returns the bytes that each token stands for. For <eos>
// returns its name.
TokenTexts read_token_bytes(const std::string& vocabulary_text);

}  // namespace ql::eval
