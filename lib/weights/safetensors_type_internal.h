// Lists the element types that safetensors files may hold. The names are written to files: do not
// change them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

namespace ql::weights {

struct SafetensorsType {
  std::string_view name;
  at::ScalarType type;
  std::int64_t bytes;
};

constexpr SafetensorsType kSafetensorsTypes[] = {
    {"F32", at::ScalarType::Float, 4}, {"F64", at::ScalarType::Double, 8},
    {"F16", at::ScalarType::Half, 2},  {"BF16", at::ScalarType::BFloat16, 2},
    {"I64", at::ScalarType::Long, 8},  {"I32", at::ScalarType::Int, 4},
    {"U8", at::ScalarType::Byte, 1},   {"BOOL", at::ScalarType::Bool, 1},
};
constexpr const char* kSafetensorsTypeNames = "F32, F64, F16, BF16, I64, I32, U8 or BOOL";

// The reference implementation limits the header to so many bytes.
constexpr std::uint64_t kSafetensorsHeaderLimit = 100'000'000;
constexpr const char* kSafetensorsMetadata = "__metadata__";

}  // namespace ql::weights
