// Checksums. They find damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ql {

std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed = 0);

// XXH3 with 128 bits as 32 hexadecimal digits: the hash of vocabularies and files.
std::string content_hash(std::string_view data);

// The same, piece by piece.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;
  void update(const void* data, std::size_t size);
  std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ql
