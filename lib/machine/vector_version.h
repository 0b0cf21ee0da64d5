// Tells which vectors the processor has. Every kernel (kernels/vector.h) is there in three
// versions, one of which is chosen when the program runs.
#pragma once

#include <cstdlib>

#if defined(__x86_64__) && defined(__GNUC__)
#define QL_VECTOR_X86 1
#else
#define QL_VECTOR_X86 0
#endif

namespace ql::machine {

enum class VectorVersion { kPortable, kAvx2, kAvx512 };

// Tells whether this processor runs it.
inline bool has_vector_version(VectorVersion version) {
#if QL_VECTOR_X86
  switch (version) {
    case VectorVersion::kAvx512:
      return has_vector_version(VectorVersion::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
    case VectorVersion::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case VectorVersion::kPortable:
      break;
  }
#endif
  return version == VectorVersion::kPortable;
}

inline constexpr const char* kVectorVersionVariable = "QL_VECTOR_VERSION";

// The one of this name (portable, avx2, avx512), or without a name the widest that this processor
// runs. Throws UsageError when it is none of these, and when this processor lacks it.
VectorVersion choose_vector_version(const char* name);

// The one that kernels run in this process: tests choose a narrower one by the environment.
inline VectorVersion vector_version() {
  static const VectorVersion kVersion = choose_vector_version(std::getenv(kVectorVersionVariable));
  return kVersion;
}

}  // namespace ql::machine
