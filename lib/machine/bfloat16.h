// Tells how the CPU multiplies matrices of bfloat16.
#pragma once

namespace ql::machine {

enum class Bfloat16Products {
  kNone,      // not at all
  kNative,    // by oneDNN, with the processor's own instructions
  kEmulated,  // numbers are rounded to bfloat16, and multiplied in float32
};

inline constexpr const char* kBfloat16Variable = "QL_BFLOAT16";

// What the variable's value asks for. Without one: native products, where this processor has the
// instructions (AVX512-BF16; all with AMX have these, too) and this program has oneDNN, else none.
// "emulated" is for tests and for repeating a training on another machine: it is slower than
// float32. Throws UsageError for other values.
Bfloat16Products choose_bfloat16_products(const char* wanted);

// Those of this process, by the environment.
Bfloat16Products bfloat16_products();

}  // namespace ql::machine
