// Reads and writes token files of other programs (llm.c, nanoGPT, Megatron). qlbin(1) describes
// their layouts.
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

}  // namespace ql::interop
