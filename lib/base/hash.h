// Checksums. They find damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ql {

std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed = 0);

// The same, piece by piece.
class Xxh64Hasher {
 public:
  explicit Xxh64Hasher(std::uint64_t seed = 0);
  ~Xxh64Hasher();
  Xxh64Hasher(const Xxh64Hasher&) = delete;
  Xxh64Hasher& operator=(const Xxh64Hasher&) = delete;
  void update(std::string_view data);
  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

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
