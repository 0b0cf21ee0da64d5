// Writes token files for other programs: llm.c, nanoGPT and Megatron. qlbin(1) has their layout.
#pragma once

#include <cstdint>
#include <filesystem>

#include "foreign/format.h"
#include "shard/joined_data.h"

namespace ql::foreign {

struct ExportOptions {
  Format format = Format::kNanogpt;
  std::int64_t file_tokens = 100'000'000;  // in each of llm.c's files, at most INT32_MAX
  int threads = 1;                         // that decode
};

// Makes `folder`, which must not exist or be empty, with files that are named after it: NAME.bin;
// NAME.bin and NAME.idx for Megatron; NAME_000000.bin and so on for llm.c. It appears whole or not
// at all. Throws Error when the vocabulary's ids do not fit into the format.
void export_tokens(shard::JoinedData& data, const std::filesystem::path& folder,
                   const ExportOptions& options, const shard::TokensDone& done);

}  // namespace ql::foreign
