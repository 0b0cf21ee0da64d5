// Chooses the device that a network computes on, and finds the capabilities of the processor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdlib>
#include <string>

#include "machine/precision.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define QL_VECTOR_X86 1
#else
#define QL_VECTOR_X86 0
#endif

namespace ql::machine {

// VectorVersion names the vectors that a processor may have. Every kernel (kernels/vector.h) exists
// in three versions, one of which is chosen when the program runs.

enum class VectorVersion { kPortable, kAvx2, kAvx512 };
constexpr auto names_of(VectorVersion) { return std::array{"portable", "avx2", "avx512"}; }

// Returns true if this processor runs the version.
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

// Returns the version of this name (portable, avx2, avx512), or without a name the widest that this
// processor runs. Throws UsageError if the name is unknown or this processor lacks the version.
VectorVersion choose_vector_version(const char* name);

// Returns the version that kernels run in this process. Tests choose a narrower one by the
// environment.
inline VectorVersion vector_version() {
  static const VectorVersion kVersion = choose_vector_version(std::getenv(kVectorVersionVariable));
  return kVersion;
}

// Bfloat16Products names the ways in which the CPU multiplies matrices of bfloat16.

enum class Bfloat16Products {
  kNone,      // not at all
  kNative,    // by oneDNN, with the processor's own instructions
  kEmulated,  // elements are rounded to bfloat16, and multiplied in float32
};

inline constexpr const char* kBfloat16Variable = "QL_BFLOAT16";

// Returns what the environment variable's value requests. Without a value that is native products,
// if this processor has the instructions (AVX512-BF16, which every processor with AMX has) and this
// program has oneDNN, else none. "emulated" is for tests and for repeating a training on another
// machine: it is slower than float32. Throws UsageError for other values.
Bfloat16Products choose_bfloat16_products(const char* wanted);

// Returns the choice of this process, by the environment.
Bfloat16Products bfloat16_products();

// These find the device that a network computes on. On the CPU our own kernels (lib/kernels)
// compute, on every other device ATen's operations.

class ProcessGroup;

// Returns the device of the name "cpu", "cuda" or "cuda:N". Throws UsageError naming --device if
// the name is another one, if LibTorch was built without CUDA, and if the machine has no such
// device. "cuda" is the first GPU, or with several processes on a machine one GPU for each. The GPU
// becomes this thread's current device. For the CPU it throws what vector_version() throws.
c10::Device find_device(const std::string& name, const ProcessGroup* group = nullptr);

// Returns the number of the GPU that find_device() chooses for the process `local_rank` of
// `local_size` on this machine, if it sees `gpus` GPUs. A launcher may show each process only its
// own GPU.
int choose_gpu(const std::string& name, int gpus, int local_rank, int local_size);

// Sets the process-wide part of the precision in ATen, and returns the precision in effect: it
// differs from `wanted` only for kAuto. Throws UsageError naming --precision if `device` does not
// support it: the CPU supports float32, and bfloat16 if bfloat16_products() allows it. All
// processes call it together; it throws Error if kAuto is not the same for all.
Precision set_up_precision(const c10::Device& device, Precision wanted,
                           ProcessGroup* group = nullptr);

// Returns words for the log: how the CPU computes products of this precision.
std::string products_on_cpu(Precision precision);

// While it lives, LibTorch's operations on `device` round the factors of matrix products to
// `precision`, in this thread. Our own kernels have the precision of the weights
// (kernels/product.h); nn::ModelPrecision sets both. Backward passes follow the precision of their
// forward passes, if they end before this object does.
class Autocast {
 public:
  Autocast(const c10::Device& device, Precision precision);
  ~Autocast();
  Autocast(Autocast&&) = delete;

 private:
  c10::DeviceType type_;
  bool before_, cache_before_;
  c10::ScalarType dtype_before_;
};

// Returns true if our own kernels compute on this tensor.
bool uses_kernels(const at::Tensor& tensor);

// While it lives, uses_kernels() is false in this thread: the CPU then computes as every other
// device does, so that tests reach that code on a machine without a GPU.
class OperationsOnly {
 public:
  OperationsOnly();
  ~OperationsOnly();
  OperationsOnly(OperationsOnly&&) = delete;

 private:
  bool before_;
};

}  // namespace ql::machine
