// Target: ql-token-stream(5). With mode bit 0 checksums are repaired.
#include "fuzz/fuzz.h"
#include "fuzz/repair.h"
#include "unit/shard_support.h"

namespace ql::fuzz {

namespace {

using shard::TokenId;
using shard::test::Documents;

struct Content {
  shard::StreamHeader header;
  Documents documents;
  std::int64_t tokens = 0;
  std::optional<shard::TextCounts> counts;
};

Content read(const std::string& name) {
  InputFile input(name);
  shard::TokenStreamReader reader(input);
  shard::test::ListSink sink;
  copy_stream(reader, sink, [](std::int64_t) {});
  return {reader.header(), sink.documents, reader.tokens(), reader.counts()};
}

void check(const Content& content, MemoryFile& file) {
  std::int64_t tokens = 0;
  for (const auto& document : content.documents) {
    tokens += static_cast<std::int64_t>(document.size());
    for (const TokenId id : document) {
      require(id < content.header.vocabulary.size, "ids are in the vocabulary");
    }
  }
  require(tokens == content.tokens, "the end block counts the tokens");
  file.put(shard::test::stream_of(content.documents, content.header, content.counts));
  const Content again = read(file.name());
  require(again.documents == content.documents, "what is written again reads the same");
  require(again.header.vocabulary == content.header.vocabulary, "and so does the vocabulary");
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static MemoryFile file;
  const Input input = input_of(data, size);
  const std::string bytes(input.bytes);
  file.put((input.mode & 1) != 0 ? repaired_stream(bytes) : bytes);
  Content content;
  if (!accepted([&] { content = read(file.name()); })) return 0;
  ++taken_inputs;
  check(content, file);
  return 0;
}
