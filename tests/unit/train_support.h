// Makes small data and small networks for the tests of lib/train.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "net/network.h"
#include "shard/pack_writer.h"
#include "train/config.h"

namespace ql::test {

// Packs `ids` into `folder`, in several shards and frames. Documents start at 0 and `starts`.
inline void pack(const std::filesystem::path& folder, const std::vector<shard::TokenId>& ids,
                 std::int64_t vocabulary, const std::string& hash = "made up",
                 const std::vector<std::size_t>& starts = {}) {
  shard::StreamHeader header;
  header.vocabulary.size = vocabulary;
  header.vocabulary.hash = hash;
  header.vocabulary.type = hash.empty() ? "" : "word";
  shard::PackOptions options;
  options.shard_tokens = 200;
  options.frame_tokens = 64;
  shard::PackWriter writer(folder, header, options);
  std::size_t written = 0;
  const auto write_to = [&](std::size_t end) {
    writer.begin_document();
    writer.write(ids.data() + written, end - written);
    written = end;
  };
  for (const std::size_t start : starts) write_to(start);
  write_to(ids.size());
  writer.finish(std::nullopt);
}

// Returns a sentence of `period` words over and over, with a word in it that counts the
// repetitions.
inline std::vector<shard::TokenId> repeating(std::size_t count, std::size_t period) {
  std::vector<shard::TokenId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<shard::TokenId>(i % period));
  return ids;
}

// Returns pseudo-random ids with some structure: each depends on the one before.
inline std::vector<shard::TokenId> scrambled(std::size_t count, std::uint32_t vocabulary) {
  std::vector<shard::TokenId> ids;
  std::uint32_t state = 12345, previous = 0;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    previous = (previous * 3 + (state >> 30U)) % vocabulary;
    ids.push_back(previous);
  }
  return ids;
}

inline net::Network tiny_ql() {
  net::Network network;
  network.architecture = net::Architecture::kTransformerQl;
  network.vocab_size = 23;
  network.d_model = 16;
  network.n_head = 2;
  network.d_head = 8;
  network.d_inner = 32;
  network.scales = {1, 1};
  network.output_layers = 1;
  network.lengths.segment = 4;
  network.lengths.memory = 4;
  network.dropout = 0.1;
  network.dropatt = 0.1;
  network.droppath = 0.3;
  return network;
}

// Returns a network with as many layers and parameters as tiny_ql().
inline net::Network tiny_xl() {
  net::Network network = tiny_ql();
  network.architecture = net::Architecture::kTransformerXl;
  network.scales = {3};
  network.output_layers = 0;
  network.droppath = 0;
  return network;
}

inline net::Network tiny_compressive(
    net::Pool pool = net::Pool::kConvolution,
    net::CompressionLoss loss = net::CompressionLoss::kAttentionReconstruction) {
  net::Network network = tiny_xl();
  network.architecture = net::Architecture::kCompressive;
  network.pool = pool;
  network.compression_loss = loss;
  network.lengths.compressed_memory = 4;
  return network;
}

inline train::TrainingConfig tiny_config() {
  train::TrainingConfig config;
  config.batch = 3;
  config.steps = 20;
  config.learning_rate = 0.003;
  config.min_lr_ratio = 0.1;
  config.warmup_steps = 4;
  config.clip = 0.25;
  config.eval_interval = 7;
  config.checkpoint_interval = 5;
  config.log_interval = 3;
  config.seed = 5;
  return config;
}

}  // namespace ql::test
