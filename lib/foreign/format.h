// The programs whose token files are read and written here.
#pragma once

#include <array>

namespace ql::foreign {

enum class Format { kLlmc, kNanogpt, kMegatron };
constexpr auto names_of(Format) { return std::array{"llmc", "nanogpt", "megatron"}; }

}  // namespace ql::foreign
