#include "foreign/megatron_index_internal.h"

#include <map>
#include <string_view>

#include "base/error.h"
#include "base/file_kind.h"

namespace ql::foreign {

namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr std::uint64_t kVersion = 1;
constexpr std::int64_t kIndexHeaderBytes = 34, kLongestSequence = INT32_MAX;
constexpr std::uint8_t kU16 = 8, kI32 = 4;  // type codes
constexpr const char* kCure = "is it an index that Megatron wrote, and complete?";

}  // namespace

void MegatronIndex::fail(const std::string& what) const { throw FormatError(name_, what, kCure); }

MegatronIndex::MegatronIndex(const std::filesystem::path& path, std::int64_t data_bytes)
    : name_(path.string()), file_(path), data_bytes_(data_bytes) {
  const std::string head = file_.head();
  if (head.substr(0, kMagic.size()) != kMagic) check_kind(head, Content::kRawIds, name_);
  if (file_.size() < kIndexHeaderBytes) {
    fail(fmt::format("{} bytes, less than the header of an index", file_.size()));
  }
  char header[kIndexHeaderBytes];
  file_.read(0, header, sizeof header);
  if (std::string_view(header, kMagic.size()) != kMagic) {
    fail("no index of Megatron's: it does not begin with \"MMIDIDX\"");
  }
  const auto version = load_little_endian<std::uint64_t>(header + 9);
  if (version != kVersion) fail(fmt::format("version {}, expected {}", version, kVersion));
  // The types of ids stand by their codes. i8 is too small for ids, 6 and 7 are no whole numbers.
  static const std::map<int, IdType> kTypes = {
      {1, {1, false}}, {3, {2, true}}, {kI32, {4, true}}, {5, {8, true}}, {kU16, {2, false}}};
  const auto code = static_cast<unsigned char>(header[17]);
  const auto type = kTypes.find(code);
  if (type == kTypes.end()) {
    fail(fmt::format("type {} of its ids, expected 1, 3, 4, 5 or 8", code));
  }
  type_ = type->second;
  const auto sequences = load_little_endian<std::uint64_t>(header + 18);
  const auto boundaries = load_little_endian<std::uint64_t>(header + 26);
  // The first two keep the third from overflowing.
  const auto size = static_cast<std::uint64_t>(file_.size());
  if (sequences > size / 12 || boundaries > size / 8 ||
      size != kIndexHeaderBytes + 12 * sequences + 8 * boundaries) {
    fail(fmt::format("{} bytes, but its header announces {} sequences and {} document boundaries",
                     size, sequences, boundaries));
  }
  if (boundaries == 0) fail("no document boundaries, expected at least one");
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
    fail(
        fmt::format("sequence {} begins at byte {} of the tokens, expected {}, where the one "
                    "before ends",
                    sequence_, place, position_));
  }
  if (length > kLongestSequence || length > (data_bytes_ - position_) / type_.bytes) {
    fail(fmt::format("sequence {} of {} tokens, more than there are behind byte {} of {}",
                     sequence_, length, position_, data_bytes_));
  }
  position_ += static_cast<std::int64_t>(length) * type_.bytes;
  ++sequence_;
  return length;
}

bool MegatronIndex::next_document(std::int64_t& tokens) {
  if (boundary_ == 0) {
    ++boundary_;
    if (const std::uint64_t first = documents_.next(); first != 0) {
      fail(fmt::format("documents begin at sequence {}, expected 0", first));
    }
  }
  if (boundary_ == boundaries_) {
    if (sequence_ != sequences_) {
      fail(fmt::format("documents end at sequence {} of {}", sequence_, sequences_));
    }
    if (position_ != data_bytes_) {
      fail(fmt::format("sequences of {} bytes, but {} bytes of tokens beside it", position_,
                       data_bytes_));
    }
    return false;
  }
  const std::uint64_t end = documents_.next();
  if (end < static_cast<std::uint64_t>(sequence_) || end > static_cast<std::uint64_t>(sequences_)) {
    fail(fmt::format("document {} ends at sequence {}, expected {} to {}", boundary_ - 1, end,
                     sequence_, sequences_));
  }
  ++boundary_;
  tokens = 0;
  while (sequence_ < static_cast<std::int64_t>(end)) tokens += next_sequence();
  return true;
}

void write_megatron_index(const ForEachDocument& for_each_document, int bytes_per_id,
                          BufferedFile& file) {
  const auto for_each_sequence = [](std::int64_t tokens, const auto& use) {
    for (; tokens > kLongestSequence; tokens -= kLongestSequence) use(kLongestSequence);
    use(tokens);
  };
  std::uint64_t documents = 0, sequences = 0, place = 0, end = 0;
  for_each_document([&](std::int64_t tokens) {
    ++documents;
    for_each_sequence(tokens, [&](std::int64_t) { ++sequences; });
  });
  file.write(kMagic);
  file.write_number(kVersion);
  file.write_number(bytes_per_id == 2 ? kU16 : kI32);
  file.write_number(sequences);
  file.write_number(documents + 1);
  for_each_document([&](std::int64_t tokens) {
    for_each_sequence(
        tokens, [&](std::int64_t part) { file.write_number(static_cast<std::uint32_t>(part)); });
  });
  for_each_document([&](std::int64_t tokens) {
    for_each_sequence(tokens, [&](std::int64_t part) {
      file.write_number(place);
      place += static_cast<std::uint64_t>(part * bytes_per_id);
    });
  });
  file.write_number(end);
  for_each_document([&](std::int64_t tokens) {
    for_each_sequence(tokens, [&](std::int64_t) { ++end; });
    file.write_number(end);
  });
}

}  // namespace ql::foreign
