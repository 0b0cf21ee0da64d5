// Reads model.json, looks for the weights, and checks the lengths.

#include "eval/checkpoint.h"

#include "base/error.h"
#include "eval/evaluate.h"
#include "net/geometry.h"
#include "weights/weights.h"

namespace ql::eval {
namespace {

std::vector<std::int64_t> or_default(const std::vector<std::int64_t>& list, std::int64_t value) {
  return list.empty() ? std::vector<std::int64_t>{value} : list;
}

std::vector<net::Lengths> all_lengths(const LengthLists& lists, const net::Lengths& trained) {
  std::vector<net::Lengths> all;
  for (const std::int64_t segment : or_default(lists.segments, trained.segment)) {
    for (const std::int64_t memory : or_default(lists.memories, trained.memory)) {
      for (const std::int64_t compressed :
           or_default(lists.compressed_memories, trained.compressed_memory)) {
        all.push_back({segment, memory, compressed});
      }
    }
  }
  return all;
}

}  // namespace

Checkpoint read_checkpoint(const std::string& name, const LengthLists& lists, std::int64_t stride) {
  Checkpoint checkpoint{name, name, net::read_model_file(name), {}};
  if (!std::filesystem::is_directory(name)) {  // `name` is the path of model.json
    const std::filesystem::path folder = checkpoint.folder.parent_path();
    checkpoint.folder = folder.empty() ? std::filesystem::path(".") : folder;
  }
  net::require_weights(checkpoint.folder, name);
  checkpoint.lengths = all_lengths(lists, checkpoint.model.network.lengths);
  for (const net::Lengths& lengths : checkpoint.lengths) {
    try {
      check_stride(net::make_geometry(checkpoint.model.network, lengths), stride);
    } catch (const ConfigError& error) {
      throw ConfigError(name, error.what());
    }
  }
  return checkpoint;
}

}  // namespace ql::eval
