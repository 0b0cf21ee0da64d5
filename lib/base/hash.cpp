#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace ql {

namespace {

std::string hexadecimal(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed) {
  return XXH64(data, size, seed);
}

struct Xxh64Hasher::State {
  explicit State(std::uint64_t seed) : xxh(XXH64_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH64_reset(xxh, seed);
  }
  ~State() { XXH64_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH64_state_t* xxh;
};

Xxh64Hasher::Xxh64Hasher(std::uint64_t seed) : state_(std::make_unique<State>(seed)) {}

Xxh64Hasher::~Xxh64Hasher() = default;

void Xxh64Hasher::update(std::string_view data) {
  if (!data.empty()) XXH64_update(state_->xxh, data.data(), data.size());
}

std::uint64_t Xxh64Hasher::digest() const { return XXH64_digest(state_->xxh); }

std::string content_hash(std::string_view data) {
  return hexadecimal(XXH3_128bits(data.data(), data.size()));
}

struct ContentHasher::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* xxh;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {}

ContentHasher::~ContentHasher() = default;

void ContentHasher::update(const void* data, std::size_t size) {
  if (size > 0) XXH3_128bits_update(state_->xxh, data, size);
}

std::string ContentHasher::digest() const { return hexadecimal(XXH3_128bits_digest(state_->xxh)); }

}  // namespace ql
