#include "machine/bfloat16.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/signals.h"
#include "machine/library_symbol_internal.h"
#include "machine/onednn_product.h"
#include "machine/vector_version.h"

namespace ql::machine {
namespace {

// It takes milliseconds.
constexpr unsigned kSecondsOfTrial = 10;

bool has_instructions() {
#if defined(QL_ONEDNN) && QL_VECTOR_X86
  return has_vector_version(VectorVersion::kAvx512) && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool multiplies() {
  const at::Tensor ones = at::ones({64, 64}, at::kBFloat16);
  at::Tensor result = at::empty({64, 64}, at::kFloat);
  multiply_by_onednn(result, ones, ones, false);
  return result.eq(64).all().item<bool>();
}

// Virtual processors may name instructions that end a process which runs them. So another process
// tries.
bool survives_a_product() {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core_file{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core_file);
    // A program's own handlers would keep it alive.
    std::signal(SIGILL, SIG_DFL);
    remove_signal_handlers();
    ::alarm(kSecondsOfTrial);
    // OpenMP's threads are not there after a fork.
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

}  // namespace

Bfloat16Products choose_bfloat16_products(const char* wanted) {
  const std::string_view value = wanted == nullptr ? "" : wanted;
  if (value == "emulated") return Bfloat16Products::kEmulated;
  if (!value.empty()) {
    throw UsageError(kBfloat16Variable,
                     fmt::format("'{}' is no way to multiply numbers of bfloat16", value),
                     "set it to emulated, or leave it out");
  }
  return has_instructions() && survives_a_product() ? Bfloat16Products::kNative
                                                    : Bfloat16Products::kNone;
}

Bfloat16Products bfloat16_products() {
  static const Bfloat16Products kProducts =
      choose_bfloat16_products(std::getenv(kBfloat16Variable));
  return kProducts;
}

}  // namespace ql::machine
