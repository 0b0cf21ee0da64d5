// The first 1,024 bytes of llm.c's token files: 256 i32, of which the first three are a magic
// number, a version and the number of tokens, and the others 0.
#pragma once

#include <cstdint>
#include <string>

#include "base/random_access_file.h"
#include "foreign/id_reader_internal.h"

namespace ql::foreign {

// Throws FormatError unless the file's size is what its header says. `name` is for messages.
IdRun read_llmc_header(const RandomAccessFile& file, const std::string& name);

// `bytes_per_id`: 2 or 4.
std::string encode_llmc_header(int bytes_per_id, std::int64_t tokens);

}  // namespace ql::foreign
