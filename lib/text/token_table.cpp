// Finds tokens by a hash; the bytes of a short token are its key.

#include "text/token_table.h"

#include <cstring>

namespace ql::text {

constexpr int kFirstSlotBits = 10;
constexpr std::uint32_t kMostTokens = std::uint32_t{1} << 31;
constexpr std::size_t kBatch = 128;  // tokens that are looked up together

constexpr std::size_t kHeadBytes = 8, kTailBytes = 3;
constexpr std::size_t kShort = kHeadBytes + kTailBytes;  // bytes of the longest token in a slot
constexpr std::uint32_t kLong = UINT32_MAX;              // not the tail of any short token

template <typename Bits>
static Bits load(const char* data) {
  Bits bits;
  std::memcpy(&bits, data, sizeof bits);
  return bits;
}

// Makes masks for a load() at byte `first` of a token: masks[size] clears the bytes after a token
// of `size` bytes.
template <typename Bits>
static std::array<Bits, kShort + 1> masks_from(std::size_t first) {
  std::array<Bits, kShort + 1> masks{};
  for (std::size_t size = first; size <= kShort; ++size) {
    std::memset(&masks[size], 0xFF, std::min(size - first, sizeof(Bits)));
  }
  return masks;
}
const auto kHeadOf = masks_from<std::uint64_t>(0);
const auto kTailOf = masks_from<std::uint32_t>(kHeadBytes);

// The Key::tail of a short token ends with a byte that holds the token's size. kSizeOf[size] is
// this byte after three zero bytes.
const auto kSizeOf = [] {
  std::array<std::uint32_t, kShort + 1> sizes{};
  for (std::size_t size = 0; size <= kShort; ++size) {
    const auto byte = static_cast<unsigned char>(size);
    std::memcpy(reinterpret_cast<char*>(&sizes[size]) + kTailBytes, &byte, 1);
  }
  return sizes;
}();

static bool is_too_full(std::size_t tokens, std::size_t slots) { return 8 * tokens > 5 * slots; }

static std::uint64_t mix(std::uint64_t bits) {
  bits *= 0x9E3779B97F4A7C15u;
  return bits ^ (bits >> 32);
}

// Hashes a token of more than kShort bytes, usually one word. A hash function for long data would
// cost more than the rest of the lookup.
static std::uint64_t hash_of_long(std::string_view token) {
  std::uint64_t hash = token.size();
  const char* data = token.data();
  for (std::size_t left = token.size(); left > kHeadBytes; left -= kHeadBytes, data += kHeadBytes) {
    hash = mix(hash ^ load<std::uint64_t>(data));
  }
  return mix(hash ^ load<std::uint64_t>(token.data() + token.size() - kHeadBytes));
}

TokenTable::TokenTable()
    : begins_(1), slots_(std::size_t{1} << kFirstSlotBits), shift_(64 - kFirstSlotBits) {}

void TokenTable::reserve(std::size_t tokens, std::size_t bytes) {
  if (size() > 0) throw std::logic_error("room is made before the first token");
  bytes_.reserve(bytes);
  begins_.reserve(tokens + 1);
  std::size_t slots = slots_.size();
  for (; is_too_full(tokens, slots); slots *= 2) --shift_;
  slots_.assign(slots, Slot());
}

// Bytes after the token may be read, up to readable_end, so that no branch depends on the size of a
// short token.
inline TokenTable::Key TokenTable::key_of(std::string_view token, const char* readable_end) {
  constexpr std::ptrdiff_t kRead = kHeadBytes + sizeof(std::uint32_t);
  const char* data = token.data();
  const std::size_t size = token.size();
  if (size > kShort || readable_end - data < kRead) return key_of(token);
  return {load<std::uint64_t>(data) & kHeadOf[size],
          (load<std::uint32_t>(data + kHeadBytes) & kTailOf[size]) | kSizeOf[size]};
}

TokenTable::Key TokenTable::key_of(std::string_view token) {
  if (token.size() > kShort) return {hash_of_long(token), kLong};
  std::array<char, kHeadBytes + sizeof(std::uint32_t)> bytes{};
  if (!token.empty()) std::memcpy(bytes.data(), token.data(), token.size());
  return key_of({bytes.data(), token.size()}, bytes.data() + bytes.size());
}

inline std::size_t TokenTable::first_slot(const Key& key) const {
  return mix(mix(key.head + key.tail * 0xD6E8FEB86659FD93u)) >> shift_;
}

bool TokenTable::is_same(std::uint32_t id, std::string_view token) const {
  const std::string_view known = this->token(id);
  if (token.size() > 2 * kHeadBytes || known.size() != token.size()) return known == token;
  // The size is 12 to 16 here, so two loads of 8 bytes cover the token. The loads overlap below 16.
  const std::size_t last = token.size() - kHeadBytes;
  return load<std::uint64_t>(known.data()) == load<std::uint64_t>(token.data()) &&
         load<std::uint64_t>(known.data() + last) == load<std::uint64_t>(token.data() + last);
}

inline std::size_t TokenTable::slot_of(std::string_view token, const Key& key) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t index = first_slot(key);; index = (index + 1) & mask) {
    const Slot& slot = slots_[index];
    // A free slot has the key of the empty token. So the search for that token may end at a free
    // slot, whose id is kNone.
    if (slot.head == key.head && slot.tail == key.tail &&
        (key.tail != kLong || is_same(slot.id, token))) {
      return index;
    }
    if (slot.id == kNone) return index;
  }
}

std::uint32_t TokenTable::find(std::string_view token) const {
  return slots_[slot_of(token, key_of(token))].id;
}

std::uint32_t TokenTable::insert(std::string_view token) { return insert(token, key_of(token)); }

std::uint32_t TokenTable::insert(std::string_view token, const Key& key) {
  std::size_t index = slot_of(token, key);
  if (slots_[index].id != kNone) return slots_[index].id;
  if (size() >= kMostTokens) {
    throw Error("", "there are more than 2^31 distinct tokens, too many to count");
  }
  if (is_too_full(std::size_t{size()} + 1, slots_.size())) {
    grow();
    index = slot_of(token, key);
  }
  const std::uint32_t id = size();
  slots_[index] = {key.head, key.tail, id};
  bytes_.append(token);
  begins_.push_back(bytes_.size());
  return id;
}

template <typename Use>
void TokenTable::for_each_key(std::string_view text, const Word* words, std::size_t count,
                              const Use& use) const {
  std::array<Key, kBatch> keys;
  const char* readable_end = text.data() + text.size();
  for (std::size_t done = 0; done < count; done += kBatch) {
    const std::size_t part = std::min(count - done, kBatch);
    for (std::size_t i = 0; i < part; ++i) {
      keys[i] = key_of(words[done + i].view(), readable_end);
      __builtin_prefetch(&slots_[first_slot(keys[i])]);
    }
    for (std::size_t i = 0; i < part; ++i) use(done + i, keys[i]);
  }
}

void TokenTable::find(std::string_view text, const Word* words, std::size_t count,
                      std::uint32_t* ids) const {
  for_each_key(text, words, count, [&](std::size_t i, const Key& key) {
    ids[i] = slots_[slot_of(words[i].view(), key)].id;
  });
}

void TokenTable::insert(std::string_view text, const Word* words, std::size_t count,
                        std::uint32_t* ids) {
  for_each_key(text, words, count,
               [&](std::size_t i, const Key& key) { ids[i] = insert(words[i].view(), key); });
}

void TokenTable::grow() {
  slots_.assign(slots_.size() * 2, Slot());
  --shift_;
  const std::size_t mask = slots_.size() - 1;
  // Tokens are inserted in the order of their ids. Frequent tokens mostly have small ids, so they
  // get the slots that a search looks at first.
  for (std::uint32_t id = 0; id < size(); ++id) {
    const Key key = key_of(token(id));
    std::size_t index = first_slot(key);
    while (slots_[index].id != kNone) index = (index + 1) & mask;
    slots_[index] = {key.head, key.tail, id};
  }
}

}  // namespace ql::text
