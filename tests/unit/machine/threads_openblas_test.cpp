// Tests the kernels that replace OpenBLAS's fallbacks for unknown processors.

#include "machine/threads.h"
#include "unit/torch_doctest.h"

namespace ql::machine {

TEST_CASE("better_openblas_kernels: the fallbacks for unknown processors are replaced") {
  CHECK(better_openblas_kernels("Prescott", VectorVersion::kAvx512) == "SkylakeX");
  CHECK(better_openblas_kernels("Prescott", VectorVersion::kAvx2) == "Haswell");
  CHECK(better_openblas_kernels("Barcelona", VectorVersion::kAvx2) == "Haswell");
  // A processor without wide vectors may really be one of these.
  CHECK(better_openblas_kernels("Prescott", VectorVersion::kPortable).empty());
}

TEST_CASE("better_openblas_kernels: kernels that OpenBLAS chose by the processor stay") {
  for (const char* name : {"Haswell", "Zen", "SkylakeX", "Sandybridge", "a processor to come"}) {
    CHECK(better_openblas_kernels(name, VectorVersion::kAvx512).empty());
  }
}

}  // namespace ql::machine
