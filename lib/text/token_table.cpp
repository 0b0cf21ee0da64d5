#include "text/token_table.h"

#include <cstring>

#include "base/error.h"

namespace ql::text {
namespace {

constexpr std::size_t kFirstSlots = 1024;
constexpr std::uint32_t kMostTokens = std::uint32_t{1} << 31;

template <typename Bits>
std::uint64_t load(const char* data) {
  Bits bits;
  std::memcpy(&bits, data, sizeof bits);
  return bits;
}

std::uint64_t mix(std::uint64_t bits) {
  bits *= 0x9E3779B97F4A7C15u;
  return bits ^ (bits >> 32);
}

// The last 1 to 8 bytes; loads may overlap, so that their number is fixed.
std::uint64_t load_rest(const char* data, std::size_t size) {
  if (size == 8) return load<std::uint64_t>(data);
  if (size >= 4) return load<std::uint32_t>(data) << 32 | load<std::uint32_t>(data + size - 4);
  return static_cast<std::uint64_t>(load<std::uint8_t>(data)) << 16 |
         load<std::uint8_t>(data + size / 2) << 8 | load<std::uint8_t>(data + size - 1);
}

// Only for this table in memory: words are short, and a call to a hash for long data would cost
// more than the rest of the lookup.
std::uint64_t hash_of(std::string_view token) {
  std::uint64_t hash = token.size();
  const char* data = token.data();
  std::size_t left = token.size();
  for (; left > 8; left -= 8, data += 8) hash = mix(hash ^ load<std::uint64_t>(data));
  if (left > 0) hash ^= load_rest(data, left);
  return mix(mix(hash));
}

}  // namespace

TokenTable::TokenTable() : slots_(kFirstSlots, Slot{0, kNone}) {}

std::size_t TokenTable::slot_of(std::string_view token, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  std::size_t slot = hash & mask;
  while (slots_[slot].id != kNone &&
         (slots_[slot].tag != tag || this->token(slots_[slot].id) != token))
    slot = (slot + 1) & mask;
  return slot;
}

std::uint32_t TokenTable::find(std::string_view token) const {
  return slots_[slot_of(token, hash_of(token))].id;
}

std::uint32_t TokenTable::insert(std::string_view token) {
  const std::uint64_t hash = hash_of(token);
  std::size_t slot = slot_of(token, hash);
  if (slots_[slot].id != kNone) return slots_[slot].id;
  if (size() >= kMostTokens) throw Error("", "more than 2^31 distinct tokens");
  if (2 * (ends_.size() + 1) > slots_.size()) {
    grow();
    slot = slot_of(token, hash);
  }
  const std::uint32_t id = size();
  slots_[slot] = {static_cast<std::uint32_t>(hash >> 32), id};
  bytes_.append(token);
  ends_.push_back(bytes_.size());
  return id;
}

void TokenTable::grow() {
  std::vector<Slot> old(slots_.size() * 2, Slot{0, kNone});
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& taken : old) {
    if (taken.id == kNone) continue;
    std::size_t slot = hash_of(token(taken.id)) & mask;
    while (slots_[slot].id != kNone) slot = (slot + 1) & mask;
    slots_[slot] = taken;
  }
}

}  // namespace ql::text
