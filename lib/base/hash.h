// Checksums. They find damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace ql {

std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed = 0);

// XXH3 with 128 bits as 32 hexadecimal digits: the hash of vocabularies and files.
std::string content_hash(std::string_view data);

// The same, piece by piece.
class ContentHasher {
 public:
  ContentHasher();
  void update(const void* data, std::size_t size);
  std::string digest() const;

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

}  // namespace ql
