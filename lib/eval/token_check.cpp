#include "eval/token_check.h"

#include "base/error.h"

namespace ql::eval {

void check_length(const TokenSource& source) {
  if (source.tokens < 2) {
    throw Error(source.name, fmt::format("expected at least 2 tokens, found {}", source.tokens),
                "the first token is only read, so one alone leaves nothing to predict");
  }
}

void check_ids(const std::string& name, std::int64_t begin, const std::int64_t* ids,
               std::int64_t count, std::int64_t vocab_size) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      throw Error(name,
                  fmt::format("token {} is {}, but the vocabulary has {} entries (0 to {})",
                              begin + i, ids[i], vocab_size, vocab_size - 1),
                  "encode the text with the vocabulary of the training data");
    }
  }
}

}  // namespace ql::eval
