// Who has failed is decided once, however many look for it.
#ifdef QL_GLOO
#include "machine/process_watch_internal.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "torch_doctest.h"

namespace ql::machine {

// Under load a process may look for the culprit when the one that found it has ended, too. Then
// that one's connection is closed as well, but not it is to be named.
TEST_CASE("the first verdict on a lost process stands, whoever comes later with another") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  LaunchedProcess process;
  process.size = process.local_size = 3;
  const auto watch = [&](int rank) {
    process.rank = rank;
    return std::make_unique<ProcessWatch>(store, process, std::chrono::seconds(60),
                                          [](const std::string&) {});
  };
  const auto first = watch(0), second = watch(1);
  CHECK(second->tell_failure("process 2 of 3 has ended") == "process 2 of 3 has ended");
  CHECK(first->tell_failure("process 1 of 3 has ended") == "process 2 of 3 has ended");
  CHECK(first->verdict(std::chrono::seconds(30)) == "process 2 of 3 has ended");
}

}  // namespace ql::machine
#endif
