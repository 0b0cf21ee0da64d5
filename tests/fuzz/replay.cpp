// Replaces libFuzzer where the compiler has none, and in the tests. It gives a target every file of
// the named folders, first intact, then with many kinds of damage, and fails when the target
// refuses all of them.
//
//   fuzz_TARGET [-runs=N] FOLDER...      N damaged variants of each file, by default 100
//
// An input that ends the program is saved as ./finding.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "fuzz/fuzz.h"
#include "unit/damage.h"
#include "unit/scratch.h"

#ifdef QL_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

namespace fs = std::filesystem;

const std::string* g_input = nullptr;  // the target's current input

// This is called in a broken program, so it only writes.
void leave_finding() {
  if (g_input == nullptr) return;
  const int file = ::open("finding", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (::write(file, g_input->data(), g_input->size()) < 0) return;
  ::close(file);
}

[[noreturn]] void end_with_finding(int signal_number) {
  leave_finding();
  std::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
  ::_exit(1);
}

void prepare() {
  std::signal(SIGABRT, end_with_finding);
#ifdef QL_SANITIZED
  // A sanitizer reports other signals itself, and reserves terabytes of addresses.
  __sanitizer_set_death_callback(leave_finding);
#else
  for (const int signal_number : {SIGSEGV, SIGFPE, SIGBUS, SIGILL}) {
    std::signal(signal_number, end_with_finding);
  }
  // This acts like libFuzzer's -malloc_limit_mb: a parser that trusts a size in a file gets
  // std::bad_alloc.
  constexpr rlim_t kBytes = rlim_t{8} << 30;
  const rlimit limit = {kBytes, kBytes};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

void give(const std::string& input) {
  g_input = &input;
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "finding: an exception left the parser: %s\n", error.what());
    std::abort();
  }
  g_input = nullptr;
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 100;
  std::size_t inputs = 0;
  prepare();
  give("");
  ql::fuzz::taken_inputs = 0;  // an empty input is valid for some parsers
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("-runs=", 0) == 0) {
      rounds = std::atoi(argument.c_str() + 6);
      continue;
    }
    for (const fs::path& file : files_of(argument)) {
      const std::string bytes = ql::test::slurp(file);
      give(bytes);
      if (bytes.empty()) continue;
      // The seed is the file's name, so a growing corpus changes nothing for the other files.
      unsigned seed = 1;
      for (const char letter : file.filename().string()) seed = seed * 31 + (letter & 0xFF);
      ql::test::Damage damage(seed);
      for (int round = 0; round < rounds; ++round) give(damage(bytes));
      inputs += 1 + static_cast<std::size_t>(rounds);
    }
  }
  std::printf("%zu inputs, %zu taken, no finding\n", inputs, ql::fuzz::taken_inputs);
  return ql::fuzz::taken_inputs == 0 ? 1 : 0;
}
