// Distinct strings numbered in order of their arrival, found again without an allocation: one
// arena of bytes and one open-addressing table of 16 bytes a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/words.h"

namespace ql::text {

class TokenTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  TokenTable();
  // Makes room for that many tokens with so many bytes in all; before the first of them.
  void reserve(std::size_t tokens, std::size_t bytes);
  std::uint32_t size() const { return static_cast<std::uint32_t>(begins_.size() - 1); }
  // Valid until the next insert.
  std::string_view token(std::uint32_t id) const {
    return std::string_view(bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
  }
  // The token's number, kNone when it is not here.
  std::uint32_t find(std::string_view token) const;
  // The token's number, a new one (the old size()) when it was not here. Throws Error above 2^31
  // tokens.
  std::uint32_t insert(std::string_view token);

  // The same for many words at once, which is several times as fast: the memory of all is asked
  // for before the first is compared. The words are parts of `text`.
  void find(std::string_view text, const Word* words, std::size_t count, std::uint32_t* ids) const;
  void insert(std::string_view text, const Word* words, std::size_t count, std::uint32_t* ids);

 private:
  // A token of up to 11 bytes stands in its slot, so that most lookups see one cache line only; of
  // a longer one there is a hash.
  struct Key {
    std::uint64_t head;  // the first 8 bytes with zeros behind, or the hash
    std::uint32_t tail;  // 3 more likewise and the size, or kLong
  };
  struct Slot {
    std::uint64_t head = 0;
    std::uint32_t tail = 0;
    std::uint32_t id = kNone;  // kNone: free; then head and tail are those of the empty token
  };
  static Key key_of(std::string_view token);
  static Key key_of(std::string_view token, const char* readable_end);
  // Calls use(i, key of words[i]) for all, with the slots on their way from memory.
  template <typename Use>
  void for_each_key(std::string_view text, const Word* words, std::size_t count,
                    const Use& use) const;
  std::size_t first_slot(const Key& key) const;
  std::size_t slot_of(std::string_view token, const Key& key) const;
  std::uint32_t insert(std::string_view token, const Key& key);
  bool is_same(std::uint32_t id, std::string_view token) const;
  void grow();

  std::string bytes_;
  std::vector<std::uint64_t> begins_;  // of each token in bytes_, and their end
  std::vector<Slot> slots_;            // a power of two, at most 5/8 of them taken
  int shift_;                          // leaves as many bits of a hash as a slot's number has
};

}  // namespace ql::text
