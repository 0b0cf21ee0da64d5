// Scores a text with a checkpoint: a line for every token, with its position in the text and its
// loss in nats, and last the perplexity.
//
//     qltok encode --vocab VOCABULARY TEXT | score CHECKPOINT
#include <transformer-ql/base/error.h>
#include <transformer-ql/eval/data_set.h>
#include <transformer-ql/eval/evaluate.h>
#include <transformer-ql/net/model_file.h>
#include <transformer-ql/weights/weights.h>
#include <cinttypes>
#include <cstdio>

int main(int count, char** words) {
  if (count != 2) {
    std::fputs("usage: qltok encode --vocab VOCABULARY TEXT | score CHECKPOINT\n", stderr);
    return 2;
  }
  const char* const checkpoint = words[1];
  try {
    const ql::net::ModelFile file = ql::net::read_model_file(checkpoint);
    const ql::eval::DataSet data = ql::eval::open_data("-");  // standard input
    ql::eval::check_vocabulary(checkpoint, file.vocabulary, data);
    const ql::nn::Model model = ql::weights::load_model(checkpoint);
    ql::eval::EvaluationOptions options;
    options.lengths = file.network.lengths;
    options.unknown = data.vocabulary.unk;
    options.sink = [](const ql::eval::ScoredTargets& targets) {
      for (std::int64_t i = 0; i < targets.count; ++i) {
        std::printf("%" PRId64 "\t%.6f\n", targets.position + i, targets.losses[i]);
      }
    };
    const ql::eval::Evaluation result = ql::eval::evaluate(model, data.source, options);
    std::printf("perplexity\t%.4f\n", result.perplexity());
  } catch (const ql::Error& error) {
    std::fprintf(stderr, "score: %s\n", error.what());
    return 1;
  }
}
