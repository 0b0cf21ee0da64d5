// Chooses the version of the kernels, the way to multiply bfloat16 matrices, the device and the
// precision, by the user's wishes and by what the hardware can do.

#include "machine/device.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <csignal>
#include <exception>

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "machine/onednn.h"
#include "machine/process_group.h"
#include "machine/threads.h"

#ifdef QL_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif
#if QL_VECTOR_X86
#include <cpuid.h>
#endif

namespace ql::machine {

VectorVersion choose_vector_version(const char* name) {
  const std::string_view wanted = name == nullptr ? "" : name;
  std::string names;
  // The widest comes first.
  for (const auto version :
       {VectorVersion::kAvx512, VectorVersion::kAvx2, VectorVersion::kPortable}) {
    if (has_vector_version(version)) {
      if (wanted.empty() || wanted == to_text(version)) return version;
      names += (names.empty() ? "" : " or ") + to_text(version);
    }
  }
  throw UsageError(kVectorVersionVariable,
                   fmt::format("'{}' is not a kernel version that this processor can run", wanted),
                   fmt::format("set it to {}, or leave it unset", names));
}

// A trial of survives_a_product() takes milliseconds. If it hangs, it is ended after these seconds.
constexpr unsigned kSecondsOfTrial = 10;

static bool has_instructions() {
#if defined(QL_ONEDNN) && QL_VECTOR_X86
  return has_vector_version(VectorVersion::kAvx512) && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool hides_amx(bool intel, unsigned features) {
  constexpr unsigned kAmxBfloat16 = 1U << 22U, kAvx512Float16 = 1U << 23U;
  return intel && (features & kAvx512Float16) != 0 && (features & kAmxBfloat16) == 0;
}

static bool multiplies() {
  const at::Tensor ones = at::ones({64, 64}, at::kBFloat16);
  // Other instructions round a result.
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor result = at::empty({64, 64}, type);
    multiply_by_onednn(result, ones, ones, false);
    if (!result.eq(64).all().item<bool>()) return false;
  }
  return true;
}

// A virtual processor may report instructions that it cannot run, and a process that uses them is
// killed. So a child process tries these instructions.
static bool survives_a_product() {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core_file{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core_file);
    // A stop signal to the group of processes must not end the trial, because this would look like
    // a failure. Handlers of this program could keep the child alive after another signal.
    const sigset_t stops = stop_signals();
    ::pthread_sigmask(SIG_BLOCK, &stops, nullptr);
    std::signal(SIGILL, SIG_DFL);
    remove_signal_handlers();
    ::alarm(kSecondsOfTrial);
    // A forked child lacks OpenMP's threads, so it uses one thread.
    auto* set_openmp_threads = library_symbol<void(int)>("omp_set_num_threads");
    if (set_openmp_threads != nullptr) set_openmp_threads(1);
    try {
      ::_exit(multiplies() ? 0 : 1);
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  if (child < 0) return false;
  int status = 0;
  const pid_t ended = uninterrupted([&] { return ::waitpid(child, &status, 0); });
  return ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Bfloat16Products choose_bfloat16_products(const char* wanted) {
  const std::string_view value = wanted == nullptr ? "" : wanted;
  if (value == "emulated") return Bfloat16Products::kEmulated;
  if (!value.empty()) {
    throw UsageError(kBfloat16Variable, fmt::format("expected 'emulated', found '{}'", value),
                     "set it to emulated, or leave it unset");
  }
  return has_instructions() && survives_a_product() ? Bfloat16Products::kNative
                                                    : Bfloat16Products::kNone;
}

Bfloat16Products bfloat16_products() {
  static const Bfloat16Products kProducts =
      choose_bfloat16_products(std::getenv(kBfloat16Variable));
  return kProducts;
}

// LibTorch 2.4 introduced one autocast interface for all devices, and deprecated the separate
// interfaces of the devices. From 2.5 on the new interface is used here.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)

static bool is_autocast(at::DeviceType type) { return at::autocast::is_autocast_enabled(type); }
static at::ScalarType autocast_dtype(at::DeviceType type) {
  return at::autocast::get_autocast_dtype(type);
}
static void set_autocast(at::DeviceType type, bool enabled, at::ScalarType dtype) {
  at::autocast::set_autocast_enabled(type, enabled);
  at::autocast::set_autocast_dtype(type, dtype);
}

#else

static bool is_autocast(at::DeviceType type) {
  return type == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
static at::ScalarType autocast_dtype(at::DeviceType type) {
  return type == at::kCPU ? at::autocast::get_autocast_cpu_dtype()
                          : at::autocast::get_autocast_gpu_dtype();
}
static void set_autocast(at::DeviceType type, bool enabled, at::ScalarType dtype) {
  if (type == at::kCPU) {
    at::autocast::set_cpu_enabled(enabled);
    at::autocast::set_autocast_cpu_dtype(dtype);
  } else {
    at::autocast::set_enabled(enabled);
    at::autocast::set_autocast_gpu_dtype(dtype);
  }
}

#endif

constexpr const char* kOption = "--device";

static thread_local bool operations_only = false;

// Returns true if LibTorch's operations, instead of our own kernels, compute on the device.
static bool uses_operations(at::DeviceType type) { return type != at::kCPU || operations_only; }

// GPUs have units for matrix products of bfloat16 since Ampere, and of float16 since Volta.
static Precision fastest_of_gpu() {
#ifdef QL_CUDA
  const int capability = at::cuda::getCurrentDeviceProperties()->major;
  if (capability >= 8) return Precision::kBfloat16;
  if (capability == 7) return Precision::kFloat16;
#endif
  return Precision::kFloat32;
}

// Returns N for "cuda:N", and -1 for "cuda", which leaves the number open. Returns nothing for
// other names.
static std::optional<int> gpu_number(const std::string& name) {
  if (name == "cuda") return -1;
  const std::string prefix = "cuda:";
  const std::string number = name.substr(std::min(name.size(), prefix.size()));
  // Two digits suffice for the GPUs of every machine, and std::stoi() cannot overflow.
  const bool is_number = !number.empty() && number.size() <= 2 &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  return name.rfind(prefix, 0) == 0 && is_number ? std::optional<int>(std::stoi(number))
                                                 : std::nullopt;
}

int choose_gpu(const std::string& name, int gpus, int local_rank, int local_size) {
  const std::optional<int> number = gpu_number(name);
  if (!number) {
    throw UsageError(kOption, fmt::format("'{}' is not a device", name), "use cpu, cuda or cuda:N");
  }
  if (gpus == 0) {
    throw UsageError(kOption, name + ": no GPU was found that CUDA can use",
                     "check the output of nvidia-smi, or leave the option out");
  }
  if (*number >= gpus) {
    throw UsageError(kOption,
                     fmt::format("{}: the last GPU that CUDA finds is cuda:{}", name, gpus - 1),
                     "use cuda, or a lower number if a single process runs on this machine");
  }
  if (local_size == 1 || gpus == 1) return std::max(*number, 0);
  if (*number >= 0) {
    throw UsageError(
        kOption,
        fmt::format("{} is one GPU, but {} processes run on this machine", name, local_size),
        "use cuda, which gives each process a GPU of its own");
  }
  // A launcher's `local_size` may be an average over the machines. So `local_rank` may be as large
  // as `local_size`, or larger.
  if (const int processes = std::max(local_size, local_rank + 1); processes > gpus) {
    throw UsageError(
        kOption, fmt::format("there are {} processes on a machine with {} GPUs", processes, gpus),
        "start one process for each GPU");
  }
  return local_rank;
}

at::Device find_device(const std::string& name, const ProcessGroup& group) {
  if (name == "cpu") {
    vector_version();  // reports a bad QL_VECTOR_VERSION now, not when the first kernel runs
    return at::kCPU;
  }
  if (gpu_number(name) && !c10::impl::hasDeviceGuardImpl(at::kCUDA)) {
    throw UsageError(kOption,
                     fmt::format("{}: this program was built with a LibTorch without CUDA", name),
                     "leave the option out, or build with a LibTorch for CUDA");
  }
  const c10::impl::DeviceGuardImplInterface* cuda =
      c10::impl::hasDeviceGuardImpl(at::kCUDA) ? c10::impl::getDeviceGuardImpl(at::kCUDA) : nullptr;
  const int number = choose_gpu(name, cuda == nullptr ? 0 : cuda->deviceCount(), group.local_rank(),
                                group.local_size());
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(number));
  // An allocation of pinned memory names no device. Without this call it would take memory of the
  // first GPU.
  cuda->setDevice(device);
  return device;
}

bool bfloat16_is_slow() {
#if QL_VECTOR_X86
  unsigned a = 0, b = 0, c = 0, features = 0;
  return bfloat16_products() == Bfloat16Products::kNative &&
         __get_cpuid_count(7, 0, &a, &b, &c, &features) != 0 &&
         hides_amx(__builtin_cpu_is("intel") != 0, features);
#else
  return false;
#endif
}

static Precision fastest_of_cpu() {
  return bfloat16_products() == Bfloat16Products::kNone || bfloat16_is_slow()
             ? Precision::kFloat32
             : Precision::kBfloat16;
}

std::string products_on_cpu(Precision precision) {
  if (precision == Precision::kFloat32) return "float32";
  return bfloat16_products() == Bfloat16Products::kNative ? "bfloat16 by oneDNN"
                                                          : "bfloat16 emulated in float32";
}

Precision set_up_precision(const at::Device& device, Precision wanted, ProcessGroup& group) {
  const Precision precision = wanted != Precision::kAuto ? wanted
                              : device.is_cpu()          ? fastest_of_cpu()
                                                         : fastest_of_gpu();
  if (device.is_cpu() && precision == Precision::kBfloat16 &&
      bfloat16_products() == Bfloat16Products::kNone) {
    throw UsageError("--precision",
                     "bfloat16: this machine cannot multiply in bfloat16, which needs AVX512-BF16 "
                     "and a build with oneDNN",
                     "give --precision float32 or auto, or add --device cuda");
  }
  if (device.is_cpu() && precision != Precision::kBfloat16 && precision != Precision::kFloat32) {
    throw UsageError(
        "--precision",
        fmt::format("{} needs a GPU: the CPU supports float32 and bfloat16", to_text(precision)),
        "add --device cuda, or give --precision float32 or auto");
  }
  group.require_same(
      {{"--precision", device.is_cpu() ? products_on_cpu(precision) : to_text(precision)}},
      "give all processes the same --precision, one that all their processors have");
  if (device.is_cpu() && precision == Precision::kBfloat16 && bfloat16_is_slow() &&
      group.is_first()) {
    log_info(
        "bfloat16 is slower than float32 on this processor, which has no AMX; with {}=emulated the "
        "difference is smaller",
        kBfloat16Variable);
  }
  at::globalContext().setAllowTF32CuBLAS(precision == Precision::kTf32);
  return precision;
}

Autocast::Autocast(const at::Device& device, Precision precision)
    : type_(device.type()),
      before_(is_autocast(type_)),
      cache_before_(at::autocast::is_autocast_cache_enabled()),
      dtype_before_(autocast_dtype(type_)) {
  const bool float16 = precision == Precision::kFloat16;
  const bool on = (float16 || precision == Precision::kBfloat16) && uses_operations(type_);
  const at::ScalarType half = float16 ? at::kHalf : at::kBFloat16;
  set_autocast(type_, on, on ? half : dtype_before_);
  // The cache of rounded weights is off: every weight is read once in a step, and a copy that
  // outlives the step would hold old weights.
  at::autocast::set_autocast_cache_enabled(false);
}

Autocast::~Autocast() {
  set_autocast(type_, before_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(cache_before_);
}

bool uses_kernels(const at::Tensor& tensor) { return !uses_operations(tensor.device().type()); }

OperationsOnly::OperationsOnly() : before_(operations_only) { operations_only = true; }
OperationsOnly::~OperationsOnly() { operations_only = before_; }

}  // namespace ql::machine
