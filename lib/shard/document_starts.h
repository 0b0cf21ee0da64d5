// documents.zst: the positions where documents start, see ql-manifest(5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shard/manifest.h"

namespace ql::shard {

// The starts as the file's content holds them: little-endian u64.
std::string encode_document_starts(const std::vector<std::int64_t>& starts);

// Throws FormatError unless the file is exactly what the manifest says: hash, sizes, strictly
// ascending positions from 0 and below the number of tokens.
std::vector<std::int64_t> read_document_starts(const PackedFolder& place, const Manifest& manifest);

}  // namespace ql::shard
