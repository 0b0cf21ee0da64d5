#include "machine/openblas_kernels_internal.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "machine/library_symbol_internal.h"

namespace ql::machine {
namespace {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

// OpenBLAS 0.3.21 takes these for unknown processors of Intel, AMD and other makers (dynamic.c).
constexpr std::array<const char*, 4> kLastResorts{"Prescott", "Barcelona", "Opteron_SSE3",
                                                  "Nehalem"};

VectorVersion widest_version() {
  for (const VectorVersion version : {VectorVersion::kAvx512, VectorVersion::kAvx2}) {
    if (has_vector_version(version)) return version;
  }
  return VectorVersion::kPortable;
}

}  // namespace

std::string better_openblas_kernels(const std::string& taken, VectorVersion widest) {
  if (std::find(kLastResorts.begin(), kLastResorts.end(), taken) == kLastResorts.end()) return "";
  switch (widest) {
    case VectorVersion::kAvx512:
      return "SkylakeX";
    case VectorVersion::kAvx2:
      return "Haswell";
    case VectorVersion::kPortable:
      break;
  }
  return "";
}

std::string take_better_openblas_kernels() {
  auto* name = library_symbol<char*()>("openblas_get_corename");
  if (name == nullptr) return "";
  // These two are what OpenBLAS chooses its kernels with when it is loaded and forgets them when it
  // is unloaded. A build for one kind of processor has neither.
  auto* choose = library_symbol<void()>("gotoblas_dynamic_init");
  auto* forget = library_symbol<void()>("gotoblas_dynamic_quit");
  const std::string better = better_openblas_kernels(name(), widest_version());
  if (!better.empty() && std::getenv(kVariable) == nullptr && choose != nullptr &&
      forget != nullptr) {
    ::setenv(kVariable, better.c_str(), 1);
    forget();
    choose();
  }
  return name();
}

}  // namespace ql::machine
