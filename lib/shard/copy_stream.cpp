#include "base/signals.h"
#include "shard/token_stream.h"

namespace ql::shard {

void copy_stream(TokenStreamReader& stream, TokenSink& sink, const TokensDone& done) {
  TokenStreamReader::Block block;
  std::int64_t tokens = 0;
  while (stream.next(block)) {
    check_for_stop();
    std::size_t position = 0;
    for (const std::uint32_t start : block.document_starts) {
      sink.write(block.ids.data() + position, start - position);
      sink.begin_document();
      position = start;
    }
    sink.write(block.ids.data() + position, block.ids.size() - position);
    tokens += static_cast<std::int64_t>(block.ids.size());
    done(tokens);
  }
  check_for_stop();
}

}  // namespace ql::shard
