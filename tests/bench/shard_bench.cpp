// Measures how fast tokens flow through the token stream, into shards, and out of them again.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "base/stream.h"
#include "scratch_folder.h"
#include "shard/pack_writer.h"
#include "shard/token_reader.h"
#include "shard/token_stream.h"

namespace {

using ql::shard::TokenId;

constexpr std::size_t kTokens = std::size_t{4} << 20;
constexpr TokenId kVocabulary = 30000;

// Ids as a text has them: the frequency falls with the id.
const std::vector<TokenId>& sample_tokens() {
  static const std::vector<TokenId> tokens = [] {
    std::mt19937_64 random(1);
    std::exponential_distribution<double> ids(1.0 / 2000);
    std::vector<TokenId> made(kTokens);
    for (TokenId& id : made) id = static_cast<TokenId>(ids(random)) % kVocabulary;
    return made;
  }();
  return tokens;
}

ql::shard::StreamHeader sample_header() {
  ql::shard::StreamHeader header;
  header.vocabulary.size = kVocabulary;
  header.provenance = ql::Json::object();
  return header;
}

void pack_sample(const std::filesystem::path& folder) {
  ql::shard::PackOptions options;
  options.force = true;
  ql::shard::PackWriter writer(folder, sample_header(), options);
  writer.begin_document();
  writer.write(sample_tokens().data(), kTokens);
  writer.finish({});
}

void write_token_stream(benchmark::State& state) {
  while (state.KeepRunning()) {
    std::size_t bytes = 0;
    const auto writer = ql::shard::make_stream_writer(
        [&](const void*, std::size_t size) { bytes += size; }, sample_header());
    writer->begin_document();
    writer->write(sample_tokens().data(), kTokens);
    writer->finish({});
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kTokens));
}
BENCHMARK(write_token_stream)->Unit(benchmark::kMillisecond);

void read_token_stream(benchmark::State& state) {
  const ScratchFolder scratch;
  const std::filesystem::path path = scratch.path() / "stream";
  {
    std::ofstream file(path, std::ios::binary);
    const auto writer = ql::shard::make_stream_writer(
        [&](const void* data, std::size_t size) {
          file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
        },
        sample_header());
    writer->begin_document();
    writer->write(sample_tokens().data(), kTokens);
    writer->finish({});
  }
  while (state.KeepRunning()) {
    ql::InputFile input(path.string());
    ql::shard::TokenStreamReader reader(input);
    ql::shard::TokenStreamReader::Block block;
    while (reader.next(block)) benchmark::DoNotOptimize(block.ids.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kTokens));
}
BENCHMARK(read_token_stream)->Unit(benchmark::kMillisecond);

void pack_shards(benchmark::State& state) {
  const ScratchFolder scratch;
  while (state.KeepRunning()) pack_sample(scratch.path() / "data");
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kTokens));
}
BENCHMARK(pack_shards)->Unit(benchmark::kMillisecond)->UseRealTime();

// Reads as training does: many rows side by side, a short segment of each at a time.
void read_rows(benchmark::State& state) {
  const ScratchFolder scratch;
  pack_sample(scratch.path() / "data");
  ql::shard::TokenReader reader(scratch.path() / "data");
  const std::int64_t rows = state.range(0);
  const std::int64_t segment = 16;
  const std::int64_t row_tokens = reader.tokens() / rows;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(segment));
  std::int64_t at = 0;
  while (state.KeepRunning()) {
    for (std::int64_t row = 0; row < rows; ++row) {
      reader.read(row * row_tokens + at, segment, ids.data(), static_cast<std::size_t>(row));
    }
    at = (at + segment) % (row_tokens - segment);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetItemsProcessed(state.iterations() * rows * segment);
}
BENCHMARK(read_rows)->Arg(1)->Arg(64)->ArgName("rows");

}  // namespace
