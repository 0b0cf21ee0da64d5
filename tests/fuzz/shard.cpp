// Target: ql-shard(5), seek table and frames. Modes: 0 the bytes are the file; 1 they are frames,
// whose checksums are repaired, and get a seek table; 2 they are the content of one frame. Mode bit
// 2: ids of 4 bytes.
#include "shard/shard.h"
#include "fuzz/fuzz.h"
#include "fuzz/repair.h"
#include "unit/shard_support.h"

namespace ql::fuzz {

namespace {

using shard::SeekEntry;

std::string with_seek_table(const std::vector<std::string>& frames) {
  std::string file;
  std::vector<SeekEntry> entries;
  for (const std::string& frame : frames) {
    const std::string repaired = repaired_frame(frame);
    entries.push_back({static_cast<std::uint32_t>(repaired.size()),
                       static_cast<std::uint32_t>(stated_size(repaired)),
                       content_checksum(repaired)});
    file += repaired;
  }
  return file + shard::encode_seek_table(entries);
}

std::string file_of(const Input& input) {
  switch (input.mode & 3) {
    case 1:
      return with_seek_table(split_frames(input.bytes));
    case 2:
      return with_seek_table({shard::FrameCompressor(1).compress(input.bytes)});
    default:
      return std::string(input.bytes);
  }
}

// Returns the number of tokens in the seek table, which a manifest would state.
std::int64_t count_tokens(const fs::path& path, int bytes_per_id) {
  std::int64_t bytes = 0;
  for (const SeekEntry& entry : shard::read_seek_table(RandomAccessFile(path), "shard")) {
    bytes += entry.content_bytes;
  }
  return bytes / bytes_per_id;
}

void read(const fs::path& folder, const std::string& file, int bytes_per_id) {
  shard::FileEntry entry;
  entry.file = "shard.zst";
  entry.tokens = count_tokens(folder / entry.file, bytes_per_id);
  entry.bytes_compressed = static_cast<std::int64_t>(file.size());
  shard::VocabularyInfo vocabulary;
  vocabulary.size = bytes_per_id == 2 ? 300 : 70000;
  const std::int64_t begin = 1000;
  shard::ShardReader reader({folder, folder / "manifest.json", "data"}, entry, begin, vocabulary);
  require(reader.frame_begin(reader.frames()) - begin == entry.tokens,
          "the frames have the shard's tokens");
  shard::FrameBuffer buffer;
  for (std::size_t frame = 0; frame < reader.frames(); ++frame) {
    reader.load_frame(frame, buffer);
    reader.decode_frame(frame, buffer);
    const std::int64_t tokens = reader.frame_end(frame) - reader.frame_begin(frame);
    require(tokens == static_cast<std::int64_t>(buffer.ids.size()), "frames are as long as stated");
    for (const shard::TokenId id : buffer.ids) {
      require(id < vocabulary.size, "ids are in the vocabulary");
    }
    require(reader.frame_of(reader.frame_begin(frame)) == frame, "positions find their frame");
  }
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static const ql::test::ScratchFolder folder;
  const Input input = input_of(data, size);
  const std::string file = file_of(input);
  ql::shard::test::overwrite(folder / "shard.zst", file);
  if (accepted([&] { read(folder.path(), file, (input.mode & 4) != 0 ? 4 : 2); })) ++taken_inputs;
  return 0;
}
