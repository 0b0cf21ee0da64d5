// Target: plain ids. Modes: 0 text, 1 and 2 raw ids of 2 and 4 bytes.
#include "fuzz/fuzz.h"
#include "interop/plain_ids.h"
#include "unit/shard_support.h"

namespace ql::fuzz {

namespace {

shard::test::Documents read(unsigned mode, const std::string& name) {
  shard::VocabularyInfo vocabulary;
  vocabulary.size = 50000;
  InputFile input(name);
  shard::test::ListSink sink;
  const shard::TokensDone ignored = [](std::int64_t) {};
  if (mode == 0) {
    interop::read_text_ids(input, vocabulary, sink, ignored);
  } else {
    interop::read_raw_ids(input, mode == 1 ? 2 : 4, vocabulary, sink, ignored);
  }
  for (const auto& document : sink.documents) {
    for (const shard::TokenId id : document) {
      require(id < vocabulary.size, "ids are in the vocabulary");
    }
  }
  return sink.documents;
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static MemoryFile file;
  const Input input = input_of(data, size);
  file.put(input.bytes);
  ql::shard::test::Documents documents;
  if (!accepted([&] { documents = read(input.mode % 3, file.name()); })) return 0;
  ++taken_inputs;
  std::string text;
  const auto writer =
      ql::interop::make_token_writer("ids",
                                     [&](const void* bytes, std::size_t count) {
                                       text.append(static_cast<const char*>(bytes), count);
                                     },
                                     {});
  ql::shard::test::send(documents, *writer);
  writer->finish(std::nullopt);
  file.put(text);
  require(read(0, file.name()) == documents, "what is written as text reads the same");
  return 0;
}
