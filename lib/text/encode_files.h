// Whole files to token ids, by several threads, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shard/token_sink.h"
#include "text/encoder.h"

namespace ql::text {

struct EncodeTotals {
  shard::TextCounts counts;
  std::int64_t tokens = 0, documents = 0;
  std::int64_t unk = 0;       // tokens that are <unk>: counts.unknown and words <unk> of the text
  std::int64_t reserved = 0;  // words that looked like <eos>
};

// `files` as TextReader takes them. `sink` and `after_block` (for flushing) are called by the
// calling thread only; the sink gets the same calls whatever the number of threads is, but not
// finish(). `block_bytes` changes nothing but speed and memory.
EncodeTotals encode_files(const std::vector<std::string>& files, const Encoder& encoder,
                          int threads, shard::TokenSink& sink,
                          const std::function<void()>& after_block,
                          std::size_t block_bytes = TextReader::kBlockBytes);

}  // namespace ql::text
