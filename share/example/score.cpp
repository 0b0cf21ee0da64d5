// Scores the lines of a text with a checkpoint: a row for every line, with its number, its targets
// and its loss in nats, and last the perplexity. A row comes as soon as its line is read.
//
//     qltok encode --vocab VOCABULARY TEXT | score CHECKPOINT
#include <transformer-ql/base/error.h>
#include <transformer-ql/eval/units.h>
#include <transformer-ql/net/model_file.h>
#include <transformer-ql/weights/weights.h>
#include <cerrno>
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
    const ql::nn::Model model = ql::weights::load_model(checkpoint);
    ql::eval::UnitOptions options;
    options.lengths = file.network.lengths;
    options.unit = ql::eval::Unit::kLine;
    const ql::eval::UnitScores scores = ql::eval::score_units(
        model, checkpoint, file.vocabulary, "-", options, [](const ql::eval::UnitSum& line) {
          std::printf("%" PRId64 "\t%" PRId64 "\t%.6f\n", line.number, line.targets, line.nll);
          std::fflush(stdout);
        });
    std::printf("perplexity\t%.4f\n", scores.evaluation.perplexity());
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw ql::SystemError("standard output", "write", errno);
    }
  } catch (const ql::Error& error) {
    std::fprintf(stderr, "score: %s\n", error.what());
    return 1;
  }
}
