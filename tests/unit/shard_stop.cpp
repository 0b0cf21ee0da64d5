// A signal is heard in all that takes long before the first token is seen.
#include <doctest/doctest.h>
#include <signal.h>

#include "base/error.h"
#include "base/signals.h"
#include "foreign/export_tokens.h"
#include "foreign/import_tokens.h"
#include "shard/document_starts_internal.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::in_child;
using ql::test::ScratchFolder;

namespace {

// Tells whether `work` gets through without a signal, and is ended by one that came before it.
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

TEST_CASE("a signal ends the count of an index") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}, {3}}, header_of(10));
  JoinedData data({(scratch / "data").string()});
  foreign::ExportOptions options;
  options.format = foreign::Format::kMegatron;
  foreign::export_tokens(data, scratch / "out", options, [](std::int64_t) {});
  CHECK(hears_a_signal([&] {
    foreign::ImportRules rules;
    rules.format = foreign::Format::kMegatron;
    foreign::count_tokens({(scratch / "out" / "out").string()}, rules);
  }));
}

TEST_CASE("a signal ends the hashing of document starts") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}, {3}}, header_of(10));
  const TokenReader reader(scratch / "data");
  CHECK(hears_a_signal([&] { DocumentStartsReader(reader.place(), reader.manifest()); }));
  CHECK(hears_a_signal([&] { DocumentStartsReader(reader.place(), reader.manifest(), 2); }));
}

}  // namespace ql::shard
