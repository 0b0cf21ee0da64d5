// Distinct strings numbered in order of their arrival, found again without an allocation: one
// arena of bytes and one open-addressing table of 8 bytes a slot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ql::text {

class TokenTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  TokenTable();
  std::uint32_t size() const { return static_cast<std::uint32_t>(ends_.size()); }
  // Valid until the next insert.
  std::string_view token(std::uint32_t id) const {
    const std::uint64_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(bytes_).substr(begin, ends_[id] - begin);
  }
  // The token's number, kNone when it is not here.
  std::uint32_t find(std::string_view token) const;
  // The token's number, a new one (the old size()) when it was not here. Throws Error above 2^31
  // tokens.
  std::uint32_t insert(std::string_view token);

 private:
  struct Slot {
    std::uint32_t tag;  // upper half of the hash: spares most comparisons of strings
    std::uint32_t id;   // kNone: free
  };
  std::size_t slot_of(std::string_view token, std::uint64_t hash) const;
  void grow();

  std::string bytes_;
  std::vector<std::uint64_t> ends_;  // of each token in bytes_
  std::vector<Slot> slots_;          // a power of two, at most half of them taken
};

}  // namespace ql::text
