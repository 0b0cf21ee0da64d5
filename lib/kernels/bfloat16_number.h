// Numbers of bfloat16 in loops over vectors (kernels/vector.h), by their bits: the upper half of a
// float's.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/vector.h"

namespace ql::kernels {

using Bfloat16Bits = std::uint16_t;

inline Bfloat16Bits* bfloat16_bits(const at::Tensor& tensor) {
  return reinterpret_cast<Bfloat16Bits*>(tensor.data_ptr<at::BFloat16>());
}

// Calls work(pointer to the tensor's numbers), which are Real, or bfloat16 beside float.
template <typename Real, typename Work>
void with_numbers(const at::Tensor& tensor, const Work& work) {
  if constexpr (std::is_same_v<Real, float>) {
    if (tensor.scalar_type() == at::kBFloat16) {
      work(bfloat16_bits(tensor));
      return;
    }
  }
  work(tensor.data_ptr<Real>());
}

// Sets `to` to the nearest number of bfloat16, of two equally near ones to the even one.
QL_VECTOR_BODY void store_number(float number, Bfloat16Bits& to) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  // Rounding could make an infinity of a number that is none.
  const std::uint32_t no_number = (bits >> 16) | 0x40;
  to = static_cast<Bfloat16Bits>((bits & 0x7FFFFFFF) > 0x7F800000 ? no_number : rounded);
}
QL_VECTOR_BODY void store_number(float number, float& to) { to = number; }
QL_VECTOR_BODY void store_number(double number, double& to) { to = number; }

// A place that is both holds its numbers already.
template <typename Real, typename Number>
QL_VECTOR_BODY void copy_numbers_body(const Real* from, std::int64_t count, Number* to) {
  if (static_cast<const void*>(from) == static_cast<const void*>(to)) return;
  for (std::int64_t i = 0; i < count; ++i) store_number(from[i], to[i]);
}
QL_VECTOR_KERNEL(copy_numbers)

QL_VECTOR_BODY float load_number(Bfloat16Bits from) {
  const std::uint32_t bits = static_cast<std::uint32_t>(from) << 16;
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}
QL_VECTOR_BODY float load_number(float from) { return from; }
QL_VECTOR_BODY double load_number(double from) { return from; }

}  // namespace ql::kernels
