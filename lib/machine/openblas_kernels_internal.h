// The kernels that OpenBLAS multiplies with. It chooses them by the processor's name when it is
// loaded. For a name that is newer than itself it takes those of a processor of 2004, which reach a
// twentieth of the speed that wide vectors would.
#pragma once

#include <string>

#include "machine/vector_version.h"

namespace ql::machine {

// OpenBLAS's name for the kernels of a processor with these vectors; empty when `taken`, the
// kernels that it has chosen, are not of those that it takes for want of a better idea.
std::string better_openblas_kernels(const std::string& taken, VectorVersion widest);

// Lets OpenBLAS take these kernels, unless OPENBLAS_CORETYPE names others, here and in the
// processes that this one starts. Returns the name of those that are in use; empty when that is not
// known. Call it while no product is under way.
std::string take_better_openblas_kernels();

}  // namespace ql::machine
