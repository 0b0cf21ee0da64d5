// Random access to a packed folder (manifest.json and shards, see ql-manifest(5), ql-shard(5)).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shard/manifest.h"
#include "shard/token_info.h"

namespace ql::shard {

// Opens the manifest; each shard is opened, and checked against it, when its first token is read,
// so that it does not matter how many there are. One object serves one thread; several cursors may
// read far apart (each keeps its own frame). Every error is a FormatError or SystemError that names
// the file.
class TokenReader {
 public:
  // `folder` holds manifest.json; the manifest's own path is accepted, too.
  explicit TokenReader(const std::filesystem::path& folder);
  ~TokenReader();

  std::int64_t tokens() const { return manifest_.tokens; }
  std::int64_t documents() const { return manifest_.documents; }
  const VocabularyInfo& vocabulary() const { return manifest_.vocabulary; }
  const std::optional<TextCounts>& counts() const { return manifest_.counts; }
  // Token positions where documents start, ascending, the first is 0 (empty data: none). Read from
  // the disk at the first call, and kept, in 8 bytes each: document_starts.h has readers that keep
  // nothing.
  const std::vector<std::int64_t>& document_starts() const;
  // The vocabulary file's text packed with the data, "" if none.
  std::string vocabulary_text() const { return read_vocabulary_text(place_, manifest_); }
  const std::string& name() const { return place_.name; }  // the folder as given: for messages
  const Manifest& manifest() const { return manifest_; }
  const PackedFolder& place() const { return place_; }
  // Identity of the data: a hash of all ids and document starts, whatever their compression.
  const std::string& hash() const { return manifest_.data_hash; }

  // Copies tokens [begin, begin + count) to out. `cursor` names one of several independent readers
  // (each caches its last frame): batch row b uses cursor b. Throws FormatError on damage,
  // std::out_of_range outside the data. Memory: a decoded frame for each cursor from 0 to the
  // highest one used.
  void read(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor = 0);
  // Returns the bytes of such a frame: those of the first one, which no other exceeds. Opens its
  // shard.
  std::int64_t frame_bytes() const;
  // Calls use(ids, count) for tokens [begin, end) in their order, a part of a frame at a time,
  // while `threads` threads decode the frames behind. Throws what read() throws, once all before
  // the damage has been used. Memory: two frames for each thread, fewer where they are large.
  using UseIds = std::function<void(const TokenId* ids, std::size_t count)>;
  void read_in_order(std::int64_t begin, std::int64_t end, int threads, const UseIds& use);
  // Closes and forgets the shards and the decoded frames; the next read() opens what it needs.
  void close_files();

 private:
  struct State;
  PackedFolder place_;
  Manifest manifest_;
  mutable std::optional<std::vector<std::int64_t>> document_starts_;
  std::unique_ptr<State> state_;
};

}  // namespace ql::shard
