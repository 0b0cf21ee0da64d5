// Opens the data of an evaluation: a packed folder, or a token stream.
#pragma once

#include <optional>
#include <string>

#include "eval/token_source.h"
#include "shard/token_info.h"

namespace ql::eval {

struct DataSet {
  std::string name;  // as given: a folder, a file, or "-"
  shard::VocabularyInfo vocabulary;
  std::optional<shard::TextCounts> counts;  // of the whole text behind the tokens
  TokenSource source;                       // keeps alive what it reads from
  std::string hash = {};                    // of packed data (shard::TokenReader::hash())
};

// `path` is a folder with a manifest, or that of a stream (shard::names_stream()). Then the whole
// of it is read here, checked to its end block, and kept in memory (4 bytes a token), because
// columns read it at several places. Throws FormatError for damaged data and for a stream whose
// producer did not finish.
DataSet open_data(const std::string& path);

// Warns that the tokens of `silent` may be of another vocabulary.
void warn_of_unknown_vocabulary(const std::string& silent, const std::string& other);

// Throws Error that names both sides when the hashes of their vocabularies differ: tokens of
// another vocabulary would give a number without a meaning. Where a side has no hash (imported ids)
// it only warns; evaluate() still checks every id. `trained_on` names the model or the data the
// counts come from.
void check_vocabulary(const std::string& trained_on,
                      const std::optional<shard::VocabularyInfo>& vocabulary, const DataSet& data);

}  // namespace ql::eval
