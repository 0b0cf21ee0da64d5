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

// VectorVersion names the vector instructions that a processor may have. Every kernel
// (kernels/vector.h) exists in three versions, one of which is chosen when the program runs.

enum class VectorVersion { kPortable, kAvx2, kAvx512 };
constexpr auto names_of(VectorVersion) { return std::array{"portable", "avx2", "avx512"}; }

// Returns true if this processor can run the version.
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

// Returns the version with this name (portable, avx2 or avx512). Without a name, returns the widest
// version that this processor can run. Throws UsageError if the name is unknown or this processor
// lacks the version.
VectorVersion choose_vector_version(const char* name);

// Returns the version of the kernels that this process uses. Tests choose a narrower version by the
// environment variable QL_VECTOR_VERSION.
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

// Returns the choice that the value of QL_BFLOAT16 requests. "emulated" requests kEmulated, which
// is for tests and for continuing a training run on another machine; it is slower than float32.
// Without a value, the choice is kNative if three conditions hold: this program has oneDNN, this
// processor has AVX512-BF16 (as every processor with AMX has), and a trial product succeeds. If one
// of them fails, the choice is kNone. Throws UsageError for other values.
Bfloat16Products choose_bfloat16_products(const char* wanted);

// Returns the choice of this process, from the environment variable QL_BFLOAT16.
Bfloat16Products bfloat16_products();

// Returns true if a processor has the instructions of AMX's generation, but not AMX, which a
// virtual machine may hide. `features` is EDX of CPUID's leaf 7.
bool hides_amx(bool intel, unsigned features);

// Returns true if native products of bfloat16 are slower than those of float32. This is so where
// AMX is hidden: a training in bfloat16 had 0.72 of the rate in float32 (share/doc/benchmarks.md).
bool bfloat16_is_slow();

// These functions find the device that a network computes on. On the CPU our own kernels
// (lib/kernels) compute; on every other device ATen's operations compute.

class ProcessGroup;

// Returns the device with the name "cpu", "cuda" or "cuda:N". "cuda" is the first GPU; with several
// processes on a machine, each process gets its own GPU. The GPU becomes this thread's current
// device. Throws UsageError for other names, for a GPU if LibTorch was built without CUDA, and if
// choose_gpu() finds no GPU for this process. These errors name --device. For "cpu", throws the
// errors of vector_version().
c10::Device find_device(const std::string& name, const ProcessGroup& group);

// Returns the number of the GPU that find_device() chooses for process `local_rank` of `local_size`
// processes on this machine, if this process sees `gpus` GPUs. A launcher may show each process
// only its own GPU; then `gpus` is 1.
int choose_gpu(const std::string& name, int gpus, int local_rank, int local_size);

// Lets ATen use TF32, in all threads, if the precision is kTf32, and forbids it for other
// precisions. Returns the precision in effect, which differs from `wanted` only for kAuto. Throws
// UsageError that names --precision if `device` does not support the precision. The CPU supports
// float32, and also bfloat16 unless bfloat16_products() is kNone. All processes of `group` have to
// call this function together. Throws Error if their precisions differ, or if products_on_cpu()
// differs between their CPUs.
Precision set_up_precision(const c10::Device& device, Precision wanted, ProcessGroup& group);

// Returns a description, for the log, of how the CPU computes matrix products of this precision.
std::string products_on_cpu(Precision precision);

// While an Autocast object lives, LibTorch's matrix products on `device` in this thread round their
// operands to `precision`, if this is bfloat16 or float16. On the CPU an Autocast object matters
// only to tests that make LibTorch compute there (OperationsOnly). Otherwise our own kernels
// compute on the CPU, and they round where nn::ModelPrecision has made rounded copies of the
// weights. A backward pass has the precision of its forward pass. Destroy this object before the
// backward pass, so that autocast does not round the backward pass's own operations.
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

// While an OperationsOnly object lives, uses_kernels() returns false in this thread. The CPU then
// computes with ATen's operations, as every other device does, so that tests reach this code on a
// machine without a GPU.
class OperationsOnly {
 public:
  OperationsOnly();
  ~OperationsOnly();
  OperationsOnly(OperationsOnly&&) = delete;

 private:
  bool before_;
};

}  // namespace ql::machine
