// Chooses the device that a network computes on, and tells what computes there: our own kernels
// (lib/kernels) on the CPU, ATen's operations on every other device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "machine/precision.h"
#include "machine/product_precision.h"

namespace ql::machine {

class ProcessGroup;

// "cpu", "cuda" or "cuda:N". Throws UsageError naming --device when it is none of these, when
// LibTorch was built without CUDA, and when the machine has no such device. "cuda" is the first
// one, or, of several processes on a machine, a GPU for each. It becomes this thread's current one.
// For the CPU it throws what vector_version() of machine/vector_version.h does.
c10::Device find_device(const std::string& name, const ProcessGroup* group = nullptr);

// The number of the GPU that find_device() chooses for the process `local_rank` of `local_size`
// on this machine, when it sees `gpus`. A launcher may show each process its own GPU alone.
int choose_gpu(const std::string& name, int gpus, int local_rank, int local_size);

// Lets ATen compute so from now on in this process, as far as it is a matter of the process, and
// returns the precision: another one than `wanted` for kAuto alone. Throws UsageError naming
// --precision when `device` does not compute so: the CPU knows float32, and bfloat16 where
// bfloat16_products() of machine/bfloat16.h says so. Processes call it together; it throws Error
// where kAuto is not the same for all.
Precision set_up_precision(const c10::Device& device, Precision wanted,
                           ProcessGroup* group = nullptr);

// Says in words what computes products of this precision on the CPU.
std::string products_on_cpu(Precision precision);

// While it lives, matrix products on `device` take float32 numbers and round them to `precision`,
// in this thread and in the pieces of work that it divides (machine/pieces.h). Where our own
// kernels compute, they see to it (kernels/product.h); elsewhere LibTorch's autocast does. Backward
// passes follow what forward passes did, if they end before it does.
class Autocast {
 public:
  Autocast(const c10::Device& device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType type_;
  bool before_, cache_before_;
  c10::ScalarType dtype_before_;
  ProductPrecision products_;
};

// Tells whether our own kernels compute on this tensor.
bool uses_kernels(const at::Tensor& tensor);

// While it lives, uses_kernels() is false in this thread: the CPU then computes as every other
// device does, which tests what no machine at hand has.
class OperationsOnly {
 public:
  OperationsOnly();
  ~OperationsOnly();
  OperationsOnly(const OperationsOnly&) = delete;
  OperationsOnly& operator=(const OperationsOnly&) = delete;

 private:
  bool before_;
};

}  // namespace ql::machine
