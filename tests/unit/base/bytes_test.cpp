// Tests checksums and hashes against known values.

#include <doctest/doctest.h>

#include "base/bytes.h"

namespace ql {

TEST_CASE("xxh64, content_hash: known checksums") {
  CHECK(xxh64("", 0) == 0xef46db3751d8e999ULL);
  CHECK(xxh64("a", 1) == 0xd24ec4f1a98c6e5bULL);
  CHECK(xxh64("abc", 3) == 0x44bc2cf5ad770999ULL);
  CHECK(content_hash("") == "99aa06d3014798d86001c324468d497f");
  CHECK(content_hash("a") != content_hash("b"));
}

TEST_CASE("ContentHasher: piece by piece gives the same hash") {
  std::string data;
  for (int i = 0; i < 5000; ++i) data += static_cast<char>(i * 31 + i / 7);
  for (const std::size_t piece : {1, 7, 240, 1024, 5000}) {
    ContentHasher hasher;
    hasher.update(nullptr, 0);
    for (std::size_t at = 0; at < data.size(); at += piece) {
      hasher.update(data.data() + at, std::min(piece, data.size() - at));
    }
    CHECK(hasher.digest() == content_hash(data));
  }
  CHECK(ContentHasher().digest() == content_hash(""));
}

}  // namespace ql
