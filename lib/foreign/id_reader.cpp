#include "foreign/id_reader_internal.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/signals.h"
#include "foreign/id_width_internal.h"

namespace ql::foreign {

namespace {

constexpr std::int64_t kIdsAtOnce = std::int64_t{64} << 10;

// Fills `ids` up to the first id that is negative or not below `vocabulary_size`. Returns its index
// and leaves it in `outside`; returns the number of ids when there is none.
template <typename Stored>
std::size_t decode_as(const char* bytes, std::int64_t vocabulary_size, std::vector<TokenId>& ids,
                      std::int64_t& outside) {
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

}  // namespace

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
      // Unsigned ones with the highest bit would be outside any vocabulary, too.
      good = as(std::int64_t{});
  }
  if (good == ids_.size()) return;
  throw FormatError(
      name_,
      fmt::format("token {}: id {} is outside the vocabulary of {} entries",
                  position_ + static_cast<std::int64_t>(good), outside, vocabulary_size_),
      plain_ ? foreign_id_advice(bytes_, type_.bytes, vocabulary_size_, kImportWidths)
             : "give the vocabulary of these ids, or its size (--vocab-size)");
}

}  // namespace ql::foreign
