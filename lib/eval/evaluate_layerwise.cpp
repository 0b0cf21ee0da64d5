#include <algorithm>
#include <vector>

#include "base/signals.h"
#include "eval/evaluation_methods.h"
#include "eval/losses.h"
#include "eval/stream_scorer.h"
#include "eval/token_check.h"

namespace ql::eval {

Evaluation evaluate_layerwise(const nn::Model& model, const TokenSource& source,
                              const EvaluationOptions& options) {
  StreamScorer scorer(model, options.lengths, options.chunk);
  Evaluation result;
  result.batch = 1;
  const auto add = [&](std::int64_t position, const std::int64_t* ids, const double* losses,
                       std::int64_t count) {
    add_losses(position, ids, losses, count, options, result);
  };
  if (model.network().reset_memory_at_documents) {
    for (const std::int64_t start : source.document_starts()) {
      scorer.put_document(start);
    }
  }
  std::vector<std::int64_t> ids;
  for (std::int64_t begin = 0; begin < source.tokens;) {
    check_for_stop();
    const std::int64_t count = std::min(scorer.chunk_tokens(), source.tokens - begin);
    ids.resize(static_cast<std::size_t>(count));
    source.read(begin, count, ids.data(), 0);
    check_ids(source, begin, ids.data(), count, model.network().vocab_size);
    scorer.put(ids.data(), count, add);
    begin += count;
    if (options.progress) {
      options.progress(result.targets);
    }
  }
  scorer.finish(add);
  if (options.progress) {
    options.progress(result.targets);
  }
  return result;
}

}  // namespace ql::eval
