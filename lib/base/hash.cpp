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

std::string content_hash(std::string_view data) {
  return hexadecimal(XXH3_128bits(data.data(), data.size()));
}

ContentHasher::ContentHasher() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void ContentHasher::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void ContentHasher::update(const void* data, std::size_t size) {
  if (size > 0) XXH3_128bits_update(state_.get(), data, size);
}

std::string ContentHasher::digest() const { return hexadecimal(XXH3_128bits_digest(state_.get())); }

}  // namespace ql
