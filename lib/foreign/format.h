// The programs whose token files are read and written here; u32 is nanoGPT's with wider ids.
#pragma once

#include <array>

namespace ql::foreign {

enum class Format { kLlmc, kNanogpt, kMegatron, kU32 };
constexpr auto names_of(Format) { return std::array{"llmc", "nanogpt", "megatron", "u32"}; }

}  // namespace ql::foreign
