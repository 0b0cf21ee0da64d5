#include "base/signals.h"
#include "shard/token_stream.h"

namespace ql::shard {

void copy_stream(TokenStreamReader& stream, TokenSink& sink, const TokensDone& done) {
  TokenStreamReader::Block block;
  std::int64_t tokens = 0;
  while (stream.next(block)) {
    check_for_stop();
    send_tokens(block.ids.data(), block.ids.size(), block.document_starts, sink);
    tokens += static_cast<std::int64_t>(block.ids.size());
    done(tokens);
  }
  check_for_stop();
}

}  // namespace ql::shard
