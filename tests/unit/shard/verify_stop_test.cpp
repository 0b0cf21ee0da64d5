// Checks that a signal stops all work that takes long before the first token is read.
#include <doctest/doctest.h>
#include <signal.h>

#include "base/error.h"
#include "base/process.h"
#include "interop/token_files.h"
#include "shard/document_starts.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::in_child;
using ql::test::ScratchFolder;

namespace {

// Returns true when `work` ends without a signal, and is stopped by an earlier signal.
template <typename Work>
bool hears_a_signal(const Work& work) {
  const auto ending = in_child([&] {
    install_signal_handlers();
    work();
    ::raise(SIGINT);
    try {
      work();
    } catch (const Interrupted&) {
      return 0;
    }
    return 1;
  });
  return ending.exit_code == 0;
}

}  // namespace

TEST_CASE("count_tokens: a signal ends the count of an index") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}, {3}}, header_of(10));
  MultiReader data({(scratch / "data").string()});
  interop::ExportOptions options;
  options.format = interop::Format::kMegatron;
  interop::export_tokens(data, scratch / "out", options, [](std::int64_t) {});
  CHECK(hears_a_signal([&] {
    interop::ImportRules rules;
    rules.format = interop::Format::kMegatron;
    interop::count_tokens({(scratch / "out" / "out").string()}, rules);
  }));
}

TEST_CASE("read_document_starts: a signal ends the hashing of document starts") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}, {3}}, header_of(10));
  const TokenReader reader(scratch / "data");
  CHECK(hears_a_signal([&] { DocumentStartsReader(reader.place(), reader.manifest()); }));
  CHECK(hears_a_signal([&] { DocumentStartsReader(reader.place(), reader.manifest(), 2); }));
}

}  // namespace ql::shard
