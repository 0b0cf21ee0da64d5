// Reads headers, indexes and ids of other programs' token files, and checks every number in them.
// Writes headers and indexes.

#include "interop/formats.h"

#include <map>

#include "base/file_kind.h"
#include "base/log.h"

namespace ql::interop {

using shard::TokenId;

// The check for wider ids needs kFewestIds ids, because fewer may look wider by chance. More than
// kMostIds would only cost time.
constexpr std::size_t kFewestIds = 4, kMostIds = 4096;

// Returns true if every `step` ids look like the parts of one wider id, lowest part first. Nearly
// all upper parts are then at most 3, because the largest vocabularies in use have some 260,000
// entries. Returns false if all parts are that small: these may be ids of a tiny vocabulary.
static bool is_sparse(const TokenId* ids, std::size_t count, std::size_t step) {
  if (count < 2 * step) return false;
  constexpr std::size_t kEnough = 256;  // with fewer ids, all upper parts must be 0
  const TokenId largest_upper = count < kEnough ? 0 : 3;
  std::size_t upper = 0, small = 0;
  bool all_small = true;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_small = ids[i] <= largest_upper;
    all_small = all_small && is_small;
    if (i % step == 0) continue;
    ++upper;
    small += is_small ? 1 : 0;
  }
  return !all_small && (count < kEnough ? small == upper : small * 20 >= upper * 19);
}

// Reads `bytes` as ids of 2 bytes, and returns true when all are in the vocabulary. `low` is the
// index of the lower byte in an id.
static bool are_u16(std::string_view bytes, std::size_t low, std::int64_t vocabulary_size) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const int id = static_cast<unsigned char>(bytes[i + low]) |
                   static_cast<unsigned char>(bytes[i + 1 - low]) << 8;
    if (id >= vocabulary_size) return false;
  }
  return true;
}

void check_width(int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                 const WidthOptions& options) {
  if (bytes_per_id >= vocabulary.bytes_per_id()) return;
  throw UsageError(
      options.u16,
      fmt::format("u16 ids cannot name all {} entries of the vocabulary", vocabulary.size),
      fmt::format("give {} if the ids have 4 bytes, or the vocabulary that they were made with",
                  options.u32));
}

void warn_of_wider_ids(const std::string& name, int bytes_per_id, const TokenId* ids,
                       std::size_t count, const WidthOptions& options) {
  count = std::min(count, kMostIds);
  if (count < kFewestIds || !is_sparse(ids, count, 2)) return;
  bool is_zero = true;
  for (std::size_t i = 1; i < count; i += 2) is_zero = is_zero && ids[i] == 0;
  const bool has_8_bytes = bytes_per_id == 4 || is_sparse(ids, count, 4);
  log_warning(
      "{}: {} of the first {} u{} ids is {}, as if each id had {} bytes; if so, {}", name,
      is_zero ? "every second" : "almost every second",
      with_thousands(static_cast<std::int64_t>(count)), 8 * bytes_per_id,
      is_zero ? "0" : "at most 3", has_8_bytes ? 8 : 4,
      has_8_bytes
          ? "pack them as text: od -A n -v -t d8 FILE | tr '\\n' ' ' | qlbin pack --input ids"
          : fmt::format("give {}", options.u32));
}

std::string outside_id_advice(std::string_view bytes, int bytes_per_id,
                              std::int64_t vocabulary_size, const WidthOptions& options) {
  if (bytes_per_id == 2 && are_u16(bytes, 1, vocabulary_size)) {
    return "in big-endian order, the ids here are inside: swap the bytes of the file with dd "
           "conv=swab";
  }
  // check_width() refuses u16 for a larger vocabulary.
  constexpr std::int64_t kMostU16 = std::int64_t{1} << 16;
  if (bytes_per_id == 4 && vocabulary_size <= kMostU16 && are_u16(bytes, 0, vocabulary_size)) {
    return fmt::format("read as u16, the ids here are inside: give {}", options.u16);
  }
  return fmt::format(
      "give the vocabulary of these ids, or its size (--vocab-size), or {} with their width",
      std::string_view(options.u16).substr(0, std::string_view(options.u16).find(' ')));
}

constexpr std::int64_t kIdsAtOnce = std::int64_t{64} << 10;

// Fills `ids` up to the first id that is negative or not below `vocabulary_size`, stores that id in
// `outside` and returns its index. Returns the number of ids when all are good.
template <typename Stored>
static std::size_t decode_as(const char* bytes, std::int64_t vocabulary_size,
                             std::vector<TokenId>& ids, std::int64_t& outside) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto stored =
        load_little_endian<std::make_unsigned_t<Stored>>(bytes + i * sizeof(Stored));
    const auto id = static_cast<std::int64_t>(static_cast<Stored>(stored));
    if (id < 0 || id >= vocabulary_size) {
      outside = id;
      return i;
    }
    ids[i] = static_cast<TokenId>(id);
  }
  return ids.size();
}

IdReader::IdReader(const RandomAccessFile& file, std::string name, std::int64_t offset, IdType type,
                   std::int64_t vocabulary_size, bool plain)
    : file_(file),
      name_(std::move(name)),
      offset_(offset),
      type_(type),
      vocabulary_size_(vocabulary_size),
      plain_(plain) {}

void IdReader::read(std::int64_t count, const UseIds& use) {
  while (count > 0) {
    check_for_stop();
    const std::int64_t part = std::min(count, kIdsAtOnce);
    bytes_.resize(static_cast<std::size_t>(part * type_.bytes));
    file_.read(offset_, bytes_.data(), bytes_.size());
    ids_.resize(static_cast<std::size_t>(part));
    decode();
    if (plain_ && position_ == 0) {
      warn_of_wider_ids(name_, type_.bytes, ids_.data(), ids_.size(), kImportWidths);
    }
    use(ids_.data(), ids_.size());
    offset_ += part * type_.bytes;
    position_ += part;
    count -= part;
  }
}

void IdReader::decode() {
  std::int64_t outside = 0;
  const auto as = [&](auto stored) {
    return decode_as<decltype(stored)>(bytes_.data(), vocabulary_size_, ids_, outside);
  };
  std::size_t good = 0;
  switch (type_.bytes) {
    case 1:
      good = as(std::uint8_t{});
      break;
    case 2:
      good = type_.is_signed ? as(std::int16_t{}) : as(std::uint16_t{});
      break;
    case 4:
      good = type_.is_signed ? as(std::int32_t{}) : as(std::uint32_t{});
      break;
    default:
      // Unsigned ids of 8 bytes are read as signed, too: those that become negative would be
      // outside of any vocabulary anyway.
      good = as(std::int64_t{});
  }
  if (good == ids_.size()) return;
  throw FormatError(
      name_,
      fmt::format("token {}: id {} is outside the vocabulary of {} entries",
                  position_ + static_cast<std::int64_t>(good), outside, vocabulary_size_),
      plain_ ? outside_id_advice(bytes_, type_.bytes, vocabulary_size_, kImportWidths)
             : "give the vocabulary of these ids, or its size (--vocab-size)");
}

constexpr std::int64_t kHeaderBytes = 1024;
// A token file of llm.c begins with a magic number and a version: kMagic16 and kVersion16 if the
// ids have 16 bits (GPT-2), kMagic32 and kVersion32 if they have 32 bits (Llama 3).
constexpr std::uint32_t kMagic16 = 20240520, kVersion16 = 1;
constexpr std::uint32_t kMagic32 = 20240801, kVersion32 = 7;

IdRun read_llmc_header(const RandomAccessFile& file, const std::string& name) {
  const auto fail = [&name](const std::string& what) {
    throw FormatError(name, what, "is it a complete token file that llm.c's scripts wrote?");
  };
  if (file.size() < kHeaderBytes) {
    fail(fmt::format("the file is shorter than the header of llm.c's token files: {} of {} bytes",
                     file.size(), kHeaderBytes));
  }
  char bytes[12];
  file.read(0, bytes, sizeof bytes);
  const auto magic = load_little_endian<std::uint32_t>(bytes);
  const auto version = load_little_endian<std::uint32_t>(bytes + 4);
  const std::int64_t tokens = load_little_endian<std::uint32_t>(bytes + 8);
  if (magic != kMagic16 && magic != kMagic32) {
    fail(fmt::format("the file begins with the number {}, expected {} or {}", magic, kMagic16,
                     kMagic32));
  }
  const std::uint32_t expected = magic == kMagic16 ? kVersion16 : kVersion32;
  if (version != expected) {
    fail(fmt::format("the header states version {}, expected {}", version, expected));
  }
  const int bytes_per_id = magic == kMagic16 ? 2 : 4;
  const std::int64_t size = kHeaderBytes + tokens * bytes_per_id;
  if (file.size() != size) {
    fail(fmt::format("the file has {} bytes, expected {} for the {} that its header announces",
                     file.size(), size, counted(tokens, "token")));
  }
  return {kHeaderBytes, tokens, {bytes_per_id, false}};
}

std::string encode_llmc_header(int bytes_per_id, std::int64_t tokens) {
  std::string bytes(kHeaderBytes, '\0');
  store_little_endian(&bytes[0], bytes_per_id == 2 ? kMagic16 : kMagic32);
  store_little_endian(&bytes[4], bytes_per_id == 2 ? kVersion16 : kVersion32);
  store_little_endian(&bytes[8], static_cast<std::uint32_t>(tokens));
  return bytes;
}

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr std::uint64_t kVersion = 1;
constexpr std::int64_t kIndexHeaderBytes = 34, kLongestSequence = INT32_MAX;
constexpr std::uint8_t kU16 = 8, kI32 = 4;  // type codes
constexpr const char* kRemedy = "are the index and its .bin complete, and did Megatron write both?";

void MegatronIndex::fail(const std::string& what) const { throw FormatError(name_, what, kRemedy); }

// Refuses two kinds of indexes that begin like Megatron's. fairseq's has no document boundaries:
// after 26 bytes follow the lengths, at `boundaries` the first two, and the offsets. A multimodal
// index of Megatron ends with a byte for each sequence.
void MegatronIndex::refuse_relatives(std::uint64_t size, std::uint64_t sequences,
                                     std::uint64_t boundaries) const {
  if (sequences > size / 12) return;
  constexpr std::uint64_t kFairseqHeaderBytes = 26;
  if (size == kFairseqHeaderBytes + 12 * sequences) {
    const char* const format = type_.bytes == 2 ? "nanogpt" : "u32";
    throw FormatError(
        name_, "this is an index of fairseq, which does not state where documents begin",
        type_.bytes == 2 || type_.bytes == 4
            ? fmt::format(
                  "import the ids of its .bin: qlbin import --format {} --vocab VOCAB, which "
                  "ends a document at each <eos>, or --vocab-size N --eos 2",
                  format)
            : "write its ids again with 16 or 32 bits, and import them with --format nanogpt or "
              "u32");
  }
  if (sequences > 0 && boundaries <= size / 8 &&
      size == kIndexHeaderBytes + 12 * sequences + 8 * boundaries + sequences) {
    throw FormatError(
        name_,
        "this is a multimodal index: it ends with a mode for each sequence, which may "
        "be text or something else",
        fmt::format("if all sequences are text, cut the modes off: head -c -{} FILE "
                    "> OTHER.idx, with its .bin as OTHER.bin",
                    sequences));
  }
}

MegatronIndex::MegatronIndex(const std::filesystem::path& path, std::int64_t data_bytes)
    : name_(path.string()), file_(path), data_bytes_(data_bytes) {
  const std::string head = file_.head();
  if (head.substr(0, kMagic.size()) != kMagic) check_kind(head, Content::kRawIds, name_);
  if (file_.size() < kIndexHeaderBytes) {
    fail(fmt::format("the file is shorter than the header of an index: {} of {} bytes",
                     file_.size(), kIndexHeaderBytes));
  }
  char header[kIndexHeaderBytes];
  file_.read(0, header, sizeof header);
  if (std::string_view(header, kMagic.size()) != kMagic) {
    fail("this is not a Megatron index: it does not begin with \"MMIDIDX\" and two zero bytes");
  }
  const auto version = load_little_endian<std::uint64_t>(header + 9);
  if (version != kVersion) {
    fail(fmt::format("the header states version {}, expected {}", version, kVersion));
  }
  // The keys are Megatron's type codes. i8 is too small for ids, and the codes 6 and 7 are
  // floating-point types.
  static const std::map<int, IdType> kTypes = {
      {1, {1, false}}, {3, {2, true}}, {kI32, {4, true}}, {5, {8, true}}, {kU16, {2, false}}};
  const auto code = static_cast<unsigned char>(header[17]);
  const auto type = kTypes.find(code);
  if (type == kTypes.end()) {
    fail(fmt::format("the type code of the ids is {}, expected 1, 3, 4, 5 or 8", code));
  }
  type_ = type->second;
  const auto sequences = load_little_endian<std::uint64_t>(header + 18);
  const auto boundaries = load_little_endian<std::uint64_t>(header + 26);
  const auto size = static_cast<std::uint64_t>(file_.size());
  refuse_relatives(size, sequences, boundaries);
  // The first two comparisons keep the third from overflowing.
  if (sequences > size / 12 || boundaries > size / 8 ||
      size != kIndexHeaderBytes + 12 * sequences + 8 * boundaries) {
    fail(
        fmt::format("the file has {} bytes, which contradicts the counts in its header (sequences: "
                    "{}, document boundaries: {})",
                    size, sequences, boundaries));
  }
  if (boundaries == 0) fail("the header announces no document boundaries, expected at least one");
  sequences_ = static_cast<std::int64_t>(sequences);
  boundaries_ = static_cast<std::int64_t>(boundaries);
  const std::int64_t places = kIndexHeaderBytes + 4 * sequences_;
  const std::int64_t documents = places + 8 * sequences_;
  lengths_ = NumberArray<std::uint32_t>(file_, kIndexHeaderBytes, sequences_);
  places_ = NumberArray<std::uint64_t>(file_, places, sequences_);
  documents_ = NumberArray<std::uint64_t>(file_, documents, boundaries_);
}

std::int64_t MegatronIndex::next_sequence() {
  const std::uint32_t length = lengths_.next();
  const std::uint64_t place = places_.next();
  if (place != static_cast<std::uint64_t>(position_)) {
    fail(fmt::format("sequence {} begins at byte {} of the .bin, expected byte {}{}", sequence_,
                     static_cast<std::int64_t>(place), position_,
                     sequence_ == 0 ? "" : ", where the previous sequence ends"));
  }
  if (length > kLongestSequence || length > (data_bytes_ - position_) / type_.bytes) {
    fail(fmt::format("sequence {} begins at byte {} and has {}, but the .bin ends at byte {}",
                     sequence_, position_, counted(static_cast<std::int32_t>(length), "token"),
                     data_bytes_));
  }
  position_ += static_cast<std::int64_t>(length) * type_.bytes;
  ++sequence_;
  return length;
}

bool MegatronIndex::next_document(std::int64_t& tokens) {
  if (boundary_ == 0) {
    ++boundary_;
    if (const std::uint64_t first = documents_.next(); first != 0) {
      fail(fmt::format("the first document begins at sequence {}, expected 0",
                       static_cast<std::int64_t>(first)));
    }
  }
  if (boundary_ == boundaries_) {
    if (sequence_ != sequences_) {
      fail(fmt::format("the documents have only {} of {} listed sequences", sequence_, sequences_));
    }
    if (position_ != data_bytes_) {
      fail(fmt::format("the sequences take only {} of {} bytes of the .bin", position_,
                       data_bytes_));
    }
    return false;
  }
  const std::uint64_t end = documents_.next();
  if (end < static_cast<std::uint64_t>(sequence_) || end > static_cast<std::uint64_t>(sequences_)) {
    fail(fmt::format("document {} ends at sequence {}, expected {} to {}", boundary_ - 1,
                     static_cast<std::int64_t>(end), sequence_, sequences_));
  }
  ++boundary_;
  tokens = 0;
  while (sequence_ < static_cast<std::int64_t>(end)) tokens += next_sequence();
  return true;
}

void write_megatron_index(const ForEachDocument& for_each_document, int bytes_per_id,
                          NewFile& file) {
  const auto write_number = [&file](auto number) {
    std::string bytes;
    append_little_endian(bytes, number);
    file.write(bytes);
  };
  // Calls use(tokens, last) for each sequence. `tokens` is the number of its tokens; `last` is true
  // for the last sequence of a document.
  const auto for_each_sequence = [&](const auto& use) {
    for_each_document([&](std::int64_t tokens) {
      for (; tokens > kLongestSequence; tokens -= kLongestSequence) use(kLongestSequence, false);
      use(tokens, true);
    });
  };
  std::uint64_t documents = 0, sequences = 0, place = 0, end = 0;
  for_each_sequence([&](std::int64_t, bool last) {
    ++sequences;
    documents += last ? 1 : 0;
  });
  file.write(kMagic);
  write_number(kVersion);
  write_number(bytes_per_id == 2 ? kU16 : kI32);
  write_number(sequences);
  write_number(documents + 1);
  for_each_sequence(
      [&](std::int64_t tokens, bool) { write_number(static_cast<std::uint32_t>(tokens)); });
  for_each_sequence([&](std::int64_t tokens, bool) {
    write_number(place);
    place += static_cast<std::uint64_t>(tokens * bytes_per_id);
  });
  write_number(end);
  for_each_sequence([&](std::int64_t, bool last) {
    ++end;
    if (last) write_number(end);
  });
}

}  // namespace ql::interop
