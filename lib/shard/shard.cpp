// Implements the reading of shards, the conversion of ids, and the checks of new folders.

#include "shard/shard.h"

#include <cstring>

#include "base/file_kind.h"
#include "base/log.h"

namespace ql::shard {

template <typename Stored>
static void append_as(std::string& bytes, const TokenId* ids, std::size_t count) {
  const std::size_t end = bytes.size();
  bytes.resize(end + count * sizeof(Stored));
  char* out = bytes.data() + end;
  for (std::size_t i = 0; i < count; ++i) {
    store_little_endian(out + i * sizeof(Stored), static_cast<Stored>(ids[i]));
  }
}

template <typename Stored>
static void decode_as(const char* bytes, std::vector<TokenId>& ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = load_little_endian<Stored>(bytes + i * sizeof(Stored));
  }
}

void append_ids(std::string& bytes, const TokenId* ids, std::size_t count, int bytes_per_id) {
  if (bytes_per_id == 2) {
    append_as<std::uint16_t>(bytes, ids, count);
  } else if (kIdsAreBytes) {
    bytes.append(reinterpret_cast<const char*>(ids), count * sizeof(TokenId));
  } else {
    append_as<std::uint32_t>(bytes, ids, count);
  }
}

void decode_ids(const void* bytes, std::size_t size, int bytes_per_id, std::vector<TokenId>& ids) {
  ids.resize(size / static_cast<std::size_t>(bytes_per_id));
  const auto* text = static_cast<const char*>(bytes);
  if (bytes_per_id == 2) {
    decode_as<std::uint16_t>(text, ids);
  } else if (kIdsAreBytes) {
    if (!ids.empty()) std::memcpy(ids.data(), bytes, ids.size() * sizeof(TokenId));
  } else {
    decode_as<std::uint32_t>(text, ids);
  }
}

std::int64_t first_id_outside(const TokenId* ids, std::size_t count, std::int64_t vocabulary_size) {
  // Comparisons of signed integers are vectorized on every x86-64 processor, but comparisons of
  // unsigned integers are not. As a signed integer, an id with the highest bit set is negative, so
  // the loop does not count it as too large. Therefore `bits` collects the bits of all ids. The
  // search below runs only for invalid ids and for vocabularies of more than INT32_MAX entries.
  if (vocabulary_size <= INT32_MAX) {
    const auto size = static_cast<std::int32_t>(vocabulary_size);
    std::int32_t outside = 0;
    TokenId bits = 0;
    for (std::size_t k = 0; k < count; ++k) {
      outside |= static_cast<std::int32_t>(static_cast<std::int32_t>(ids[k]) >= size);
      bits |= ids[k];
    }
    if (outside == 0 && bits <= INT32_MAX) return -1;
  }
  std::size_t i = 0;
  while (i < count && static_cast<std::int64_t>(ids[i]) < vocabulary_size) ++i;
  return i < count ? static_cast<std::int64_t>(i) : -1;
}

std::string outside_id(const std::vector<TokenId>& ids, std::int64_t position,
                       std::int64_t vocabulary_size) {
  const std::int64_t outside = first_id_outside(ids.data(), ids.size(), vocabulary_size);
  if (outside < 0) return "";
  return fmt::format("token {}: id {} is outside the vocabulary of {} entries", position + outside,
                     ids[static_cast<std::size_t>(outside)], vocabulary_size);
}

static bool is_shard_name(const std::string& name) {
  const std::string prefix = "shard-", suffix = ".zst";
  const std::size_t digits_end = name.find_first_not_of("0123456789", prefix.size());
  return name.rfind(prefix, 0) == 0 && digits_end > prefix.size() && digits_end < name.size() &&
         name.substr(digits_end) == suffix;
}

static bool is_packed_file(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool ours = name == "manifest.json" || name == "documents.zst" ||
                    name == "vocabulary.json" || is_shard_name(name);
  return ours && entry.symlink_status().type() == fs::file_type::regular;
}

// Returns the name without a trailing slash or "/.". Keeps "..": the name before it may be a
// symbolic link.
static fs::path named_target(const fs::path& folder) {
  fs::path target = folder;
  while (target.has_relative_path() && (!target.has_filename() || target.filename() == ".")) {
    target = target.parent_path();
  }
  if (!target.has_filename() || target.filename() == "." || target.filename() == "..") {
    throw UsageError("", fmt::format("\"{}\" is not a name for a new folder", folder.string()),
                     "end the path with another name, such as ./data");
  }
  return target;
}

// Returns the target without a trailing slash. Calls check(target) for an existing folder that is
// not empty.
template <typename Check>
static fs::path checked_target(const fs::path& folder, const Check& check) {
  fs::path target = named_target(folder);
  try {
    const fs::file_status status = fs::symlink_status(target);
    if (!fs::exists(status)) return target;
    if (status.type() != fs::file_type::directory) {
      throw Error(target.string(),
                  status.type() == fs::file_type::symlink
                      ? "exists and is a symbolic link, not a folder itself"
                      : "exists and is not a folder",
                  "choose another name");
    }
    if (!fs::is_empty(target)) check(target);
  } catch (const fs::filesystem_error& error) {
    throw SystemError(target.string(), "examine", error.code().value());
  }
  return target;
}

static const fs::path& with_parents(const fs::path& path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) throw SystemError(path.string(), "create its parent folder", error.value());
  return path;
}

fs::path check_pack_target(const fs::path& folder, bool force) {
  return checked_target(folder, [force](const fs::path& target) {
    const std::string name = target.string();
    for (const fs::directory_entry& entry : fs::directory_iterator(target)) {
      if (!is_packed_file(entry)) {
        throw Error(name,
                    fmt::format("exists and holds \"{}\", which is not a file that qlbin writes",
                                entry.path().filename().string()),
                    "choose another name, or remove the folder yourself");
      }
    }
    if (!fs::exists(target / "manifest.json")) {
      throw Error(name, "exists, is not empty and has no manifest.json",
                  "choose another name, or remove the folder yourself");
    }
    if (!force) {
      throw Error(name, "holds packed data already",
                  "choose another name, or give --force to replace the data");
    }
  });
}

fs::path check_empty_target(const fs::path& folder) {
  return checked_target(folder, [](const fs::path& target) {
    throw Error(target.string(), "exists and is not empty",
                "choose another name, or remove the folder yourself");
  });
}

NewFolder::NewFolder(const fs::path& path) : AtomicFolder(with_parents(path)), path_(path) {}

ShardReader::ShardReader(const PackedFolder& place, const FileEntry& entry, std::int64_t begin,
                         const VocabularyInfo& vocabulary)
    : path_(path_inside(place, entry.file)),
      name_(path_.string()),
      expected_hash_(entry.hash),
      vocabulary_size_(vocabulary.size),
      bytes_per_id_(vocabulary.bytes_per_id()) {
  const RandomAccessFile& opened = file();
  if (opened.size() != entry.bytes_compressed) {
    const std::string head = opened.head();
    if (file_kind(head) != FileKind::kZstd) check_kind(head, Content::kRawIds, name_);
    check_size(name_, opened.size(), entry.bytes_compressed);
  }
  frames_ = read_seek_table(opened, name_);
  frame_begins_.reserve(frames_.size() + 1);
  frame_offsets_.reserve(frames_.size());
  std::int64_t position = begin, offset = 0;
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    if (frames_[i].content_bytes % static_cast<std::uint32_t>(bytes_per_id_) != 0) {
      fail_as_damaged(name_, fmt::format("frame {}: {} bytes are not a whole number of ids", i,
                                         frames_[i].content_bytes));
    }
    frame_begins_.push_back(position);
    frame_offsets_.push_back(offset);
    position += frames_[i].content_bytes / static_cast<std::uint32_t>(bytes_per_id_);
    offset += frames_[i].frame_bytes;
  }
  frame_begins_.push_back(position);
  if (position - begin != entry.tokens) {
    fail_as_damaged(name_, fmt::format("the seek table has {} tokens, but the manifest states {}",
                                       position - begin, entry.tokens));
  }
  if (!entry.seek_table_hash.empty() && content_hash(seek_table()) != entry.seek_table_hash) {
    fail_as_damaged(name_, "this shard holds other data than those that the manifest describes");
  }
  log_debug("reading {}: {} tokens in {} frames", name_, entry.tokens, frames_.size());
}

const RandomAccessFile& ShardReader::file() {
  if (!file_) file_ = std::make_unique<RandomAccessFile>(path_);
  return *file_;
}

void ShardReader::check_hash(const std::string& hash) const {
  if (hash == expected_hash_) return;
  fail_as_damaged(name_, "hash mismatch, though the checksums of all frames match");
}

std::size_t ShardReader::frame_memory(std::size_t frame) const {
  const SeekEntry& entry = frames_[frame];
  const std::size_t ids = entry.content_bytes / static_cast<std::uint32_t>(bytes_per_id_);
  return entry.frame_bytes + (in_place() ? 0 : entry.content_bytes) + ids * sizeof(TokenId);
}

std::size_t ShardReader::frame_of(std::int64_t position) const {
  const auto next = std::upper_bound(frame_begins_.begin(), frame_begins_.end(), position);
  return static_cast<std::size_t>(next - frame_begins_.begin()) - 1;
}

void ShardReader::load_frame(std::size_t frame, FrameBuffer& buffer) {
  buffer.stored.resize(frames_[frame].frame_bytes);
  file().read(frame_offsets_[frame], buffer.stored.data(), buffer.stored.size());
}

void ShardReader::decode_frame(std::size_t frame, FrameBuffer& buffer) const {
  const SeekEntry& entry = frames_[frame];
  const auto fail = [&](const std::string& what) {
    fail_as_damaged(fmt::format("{}: frame {}", name_, frame), what);
  };
  std::vector<TokenId>& ids = buffer.ids;
  if (in_place()) {
    ids.resize(entry.content_bytes / sizeof(TokenId));
  } else {
    buffer.content.resize(entry.content_bytes);
  }
  void* content = in_place() ? static_cast<void*>(ids.data()) : buffer.content.data();
  const std::string problem =
      buffer.decompressor.decompress(buffer.stored, entry.content_bytes, content);
  if (!problem.empty()) fail(problem);
  // If the frame stores a checksum, zstd has compared it with the content. So this checksum
  // is right, and the content's checksum need not be computed again.
  const std::optional<std::uint32_t> compared = frame_checksum(buffer.stored);
  const std::uint32_t checksum = compared ? *compared : seek_checksum(content, entry.content_bytes);
  if (checksum != entry.checksum) fail("checksum mismatch");
  if (!in_place()) decode_ids(content, entry.content_bytes, bytes_per_id_, ids);
  const std::string outside = outside_id(ids, frame_begin(frame), vocabulary_size_);
  if (!outside.empty()) fail(outside);
}

std::string_view ShardReader::content(const FrameBuffer& buffer) const {
  if (!in_place()) return buffer.content;
  return {reinterpret_cast<const char*>(buffer.ids.data()), buffer.ids.size() * sizeof(TokenId)};
}

std::string shard_file_name(std::size_t number) { return fmt::format("shard-{:05}.zst", number); }

void HashedFile::write(std::string_view bytes) {
  file_->write(bytes.data(), bytes.size());
  hasher_.update(bytes.data(), bytes.size());
  size_ += static_cast<std::int64_t>(bytes.size());
}

FileEntry HashedFile::finish(const std::string& name, std::int64_t content_bytes) {
  file_->close();
  return {name, content_bytes, size_, hasher_.digest()};
}

}  // namespace ql::shard
