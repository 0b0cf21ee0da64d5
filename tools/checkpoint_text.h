// Reads the vocabulary of a checkpoint, for programs that take text, and passes it on.
#pragma once

#include <filesystem>
#include <string>

#include "text/vocabulary.h"

// Returns the path of the vocabulary of a checkpoint: a folder, or the path of its model.json.
std::filesystem::path vocabulary_file(const std::string& checkpoint);

// Returns the vocabulary of a checkpoint, and its file's content in `text`. Throws Error if the
// file has another vocabulary than the model, or is missing; `remedy` is then what else the user
// can do.
ql::text::Vocabulary checkpoint_vocabulary(const std::string& checkpoint, std::string& text,
                                           const std::string& remedy);

// Returns the record from which ItemRecords (tools/item_records.h) knows a vocabulary. `text` is
// its file. `missing` says why there is no vocabulary, if `vocabulary` is null.
ql::Json vocabulary_record(const ql::text::Vocabulary* vocabulary, const std::string& text,
                           const std::string& missing);
