// Reads and writes token files of other programs (llm.c, nanoGPT, Megatron) and ids without a
// header, as text or as raw bytes. qlbin(1) describes the layouts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file_kind.h"
#include "base/stream.h"
#include "interop/formats.h"
#include "shard/manifest.h"
#include "shard/multi_reader.h"
#include "shard/token_stream.h"

namespace ql::interop {

struct ImportRules {
  Format format = Format::kNanogpt;
  shard::VocabularyInfo vocabulary;
  // For llm.c, nanoGPT and u32 a document begins after each vocabulary.eos, or with `eos_first` at
  // each vocabulary.eos. Without an eos all files together are one document. For Megatron the index
  // defines the documents.
  bool eos_first = false;
  Content content = Content::kRawIds;  // of files of nanoGPT and u32, for check_kind()
};

// Returns the number of tokens in the files. A Megatron file is named with .bin, with .idx or with
// neither. Throws FormatError if headers, indexes and sizes do not agree. If the vocabulary has
// more than 65,536 entries, throws FormatError for an llm.c file with u16 ids, and UsageError for
// nanoGPT. Only logs a warning about this for a Megatron file with ids of 1 or 2 bytes.
std::int64_t count_tokens(const std::vector<std::string>& files, const ImportRules& rules);

// Sends the tokens of all `files` to `sink`, in the order of `files`. Memory does not grow with the
// files. Throws FormatError for ids outside the vocabulary, and if headers, indexes and sizes do
// not agree. Does not call finish() of the sink.
void import_tokens(const std::vector<std::string>& files, const ImportRules& rules,
                   shard::TokenSink& sink, const shard::TokensDone& done);

struct ExportOptions {
  Format format = Format::kNanogpt;
  std::int64_t file_tokens = 100'000'000;  // tokens in each of llm.c's files
  int threads = 1;                         // for decompression
};

// Creates `folder`, which must be missing or empty. The files in it have its name. Megatron gets
// NAME.bin and NAME.idx, llm.c gets NAME_000000.bin and so on, and the other formats get NAME.bin.
// The folder appears complete or not at all. Throws Error when the vocabulary's ids do not fit the
// format, and ConfigError for a number of `file_tokens` outside 1 to INT32_MAX.
void export_tokens(shard::MultiReader& data, const std::filesystem::path& folder,
                   const ExportOptions& options, const shard::TokensDone& done);

// Token ids without a header are text with one line per document, or raw little-endian ids. Neither
// form has an end mark, so a reader cannot notice that the producer died; the token stream has an
// end mark.

// Reads decimal ids separated by whitespace, with one line per document; empty lines are ignored.
// Throws FormatError, with the line number, for anything else and for ids outside the vocabulary.
// The message about an id outside the vocabulary ends with `outside_remedy`. Does not call finish()
// of the sink.
void read_text_ids(
    InputFile& input, const shard::VocabularyInfo& vocabulary, shard::TokenSink& sink,
    const shard::TokensDone& done,
    const char* outside_remedy = "give the vocabulary of these ids, or its size (--vocab-size)");

// Reads ids of 2 or 4 bytes as one document. Throws FormatError for ids outside the vocabulary and
// for an input that ends within an id. Throws UsageError for ids of 2 bytes if the vocabulary has
// more than 65,536 entries. Logs a warning when the ids look like parts of wider ids. Does not call
// finish() of the sink. `content` is kRawIds, or kAnything for a file whose ids happen to look like
// another kind of file.
void read_raw_ids(InputFile& input, int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                  shard::TokenSink& sink, const shard::TokensDone& done,
                  Content content = Content::kRawIds);

// Returns a sink that writes one of four formats. "stream" is the token stream, and "ids" is text
// with one line per document. "u16" and "u32" are raw ids without document boundaries. For "u16",
// throws Error at once if the vocabulary has more than 65,536 entries. Throws UsageError for
// another format.
std::unique_ptr<shard::TokenSink> make_token_writer(const std::string& format, shard::ByteSink sink,
                                                    const shard::StreamHeader& header);

}  // namespace ql::interop
