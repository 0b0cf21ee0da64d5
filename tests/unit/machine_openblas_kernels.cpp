#include "machine/openblas_kernels_internal.h"

#include "torch_doctest.h"

namespace ql::machine {

TEST_CASE("what OpenBLAS takes for a processor it does not know is replaced") {
  CHECK(better_openblas_kernels("Prescott", VectorVersion::kAvx512) == "SkylakeX");
  CHECK(better_openblas_kernels("Prescott", VectorVersion::kAvx2) == "Haswell");
  CHECK(better_openblas_kernels("Barcelona", VectorVersion::kAvx2) == "Haswell");
  // A processor without wide vectors may well be one of these.
  CHECK(better_openblas_kernels("Prescott", VectorVersion::kPortable).empty());
}

TEST_CASE("kernels that OpenBLAS has chosen by the processor stay") {
  for (const char* name : {"Haswell", "Zen", "SkylakeX", "Sandybridge", "a processor to come"}) {
    CHECK(better_openblas_kernels(name, VectorVersion::kAvx512).empty());
  }
}

}  // namespace ql::machine
