// Measures how fast text becomes token ids.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <utility>

#include "scratch_folder.h"
#include "text/encoder.h"
#include "text/vocabulary_builder.h"

namespace {

using ql::text::TokenType;

// Makes words that are distributed as in a text: a word's frequency falls with its rank, and rare
// words are long.
std::string sample_text(std::size_t bytes) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> logarithm_of_rank(0.3);
  std::string text;
  while (text.size() < bytes) {
    for (int word = 0; word < 20; ++word) {
      auto rank = static_cast<std::uint64_t>(std::exp(logarithm_of_rank(random))) % 50000;
      do {
        text += static_cast<char>('a' + rank % 26);
        rank /= 26;
      } while (rank > 0);
      text += word < 19 ? ' ' : '\n';
    }
  }
  return text;
}

ql::text::BuiltVocabulary make_vocabulary(const std::string& text, TokenType type, bool lowercase) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() / "text";
  std::ofstream(path) << text;
  ql::text::VocabularyRules rules;
  rules.type = type;
  rules.lowercase = lowercase;
  return ql::text::build_vocabulary({path}, rules);
}

void count_words(benchmark::State& state) {
  const std::string text = sample_text(8 << 20);
  const ScratchFolder scratch;
  const std::string path = scratch.path() / "text";
  std::ofstream(path) << text;
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(ql::text::build_vocabulary({path}, {}).vocabulary.size());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(count_words)->Unit(benchmark::kMillisecond);

// One thread encodes one block.
void encode(benchmark::State& state, TokenType type, bool lowercase) {
  ql::text::TextBlock block;
  block.text = sample_text(ql::text::TextReader::kBlockBytes);
  block.ends_file = true;
  const auto built = make_vocabulary(block.text, type, lowercase);
  ql::text::EncodeOptions options;
  if (!built.vocabulary.eos()) options.eos = ql::text::EosRule::kNone;
  const ql::text::Encoder encoder(built.vocabulary, options);
  while (state.KeepRunning()) benchmark::DoNotOptimize(encoder.encode(block).ids.data());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(block.text.size()));
}
BENCHMARK_CAPTURE(encode, words, TokenType::kWord, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(encode, words_lowercase, TokenType::kWord, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(encode, characters, TokenType::kChar, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(encode, bytes, TokenType::kByte, false)->Unit(benchmark::kMicrosecond);

}  // namespace
