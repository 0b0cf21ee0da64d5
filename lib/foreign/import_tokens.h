// Reads token files of other programs: llm.c, nanoGPT (also with u32 ids) and Megatron. qlbin(1)
// has their layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foreign/format.h"
#include "shard/token_info.h"
#include "shard/token_sink.h"

namespace ql::foreign {

struct ImportRules {
  Format format = Format::kNanogpt;
  shard::VocabularyInfo vocabulary;
  // llm.c, nanoGPT and u32: a document begins after each vocabulary.eos, or, with `eos_first`, at
  // each. Without an eos all files together are one document. Megatron's index says where documents
  // are.
  bool eos_first = false;
};

// The tokens that the files hold by their headers, indexes and sizes, which are compared with each
// other and must agree. For Megatron a file is named with .bin, .idx or neither. Throws
// FormatError, also for ids that a header says are u16 and a vocabulary that exceeds them (of
// Megatron a warning), and UsageError for such a vocabulary and nanoGPT.
std::int64_t count_tokens(const std::vector<std::string>& files, const ImportRules& rules);

// Sends the tokens of all files, in the order of the names. Memory does not grow with the files.
// FormatError for ids outside the vocabulary and for what count_tokens() finds. Does not finish the
// sink.
void import_tokens(const std::vector<std::string>& files, const ImportRules& rules,
                   shard::TokenSink& sink, const shard::TokensDone& done);

}  // namespace ql::foreign
