// Numbers distinct strings in order of their arrival, and finds them again.
#pragma once

#include <vector>

#include "text/words.h"

namespace ql::text {

// Numbers tokens without an allocation for each. It has one arena of bytes and one open-addressing
// table of 16 bytes per slot.
class TokenTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  TokenTable();
  // Makes room for that many tokens with that many bytes in total. Call it before the first token.
  void reserve(std::size_t tokens, std::size_t bytes);
  std::uint32_t size() const { return static_cast<std::uint32_t>(begins_.size() - 1); }
  // The result is valid until the next insert().
  std::string_view token(std::uint32_t id) const {
    return std::string_view(bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
  }
  // Returns the token's number, or kNone for an unknown token.
  std::uint32_t find(std::string_view token) const;
  // Adds the token if it is unknown. Returns its number, which is the old size() for a new token.
  // Throws Error above 2^31 tokens.
  std::uint32_t insert(std::string_view token);

  // These functions do the same as find() and insert() for many words at once, several times as
  // fast: the slots of up to 128 words are prefetched before the first word is compared. The words
  // must be parts of `text`.
  void find(std::string_view text, const Word* words, std::size_t count, std::uint32_t* ids) const;
  void insert(std::string_view text, const Word* words, std::size_t count, std::uint32_t* ids);

 private:
  // A token of up to 11 bytes is short. Its slot stores the token itself, with zeros after it, so
  // that most lookups read only one cache line. The slot of a long token holds a hash of the token.
  struct Key {
    std::uint64_t head;  // short token: its first 8 bytes; long token: its hash
    std::uint32_t tail;  // short token: 3 more bytes and its size; long token: kLong
  };
  struct Slot {
    std::uint64_t head = 0;
    std::uint32_t tail = 0;
    std::uint32_t id = kNone;  // kNone: the slot is free, and has the key of the empty token
  };
  static Key key_of(std::string_view token);
  static Key key_of(std::string_view token, const char* readable_end);
  // Calls use(i, key of words[i]) for all words, after it has begun to load their slots from
  // memory.
  template <typename Use>
  void for_each_key(std::string_view text, const Word* words, std::size_t count,
                    const Use& use) const;
  std::size_t first_slot(const Key& key) const;
  std::size_t slot_of(std::string_view token, const Key& key) const;
  std::uint32_t insert(std::string_view token, const Key& key);
  bool is_same(std::uint32_t id, std::string_view token) const;
  void grow();

  std::string bytes_;
  std::vector<std::uint64_t> begins_;  // offset of each token in bytes_, then the end of the last
  std::vector<Slot> slots_;  // their number is a power of two; at most 5/8 of them are taken
  int shift_;                // hash >> shift_ is the index of a slot
};

}  // namespace ql::text
