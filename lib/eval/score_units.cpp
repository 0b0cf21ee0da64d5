#include "eval/score_units.h"

#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/signals.h"
#include "eval/losses.h"
#include "eval/stream_scorer.h"
#include "eval/token_check.h"
#include "shard/joined_data.h"
#include "shard/token_stream.h"

namespace ql::eval {
namespace {

// One pass over a stream: tokens go to the scorer, their losses to the sums of units.
class Pass : public shard::TokenSink {
 public:
  Pass(const nn::Model& model, const DataSet& data, const UnitOptions& options,
       const UnitSums::Sink& sink)
      : options_(options),
        eos_(data.vocabulary.eos),
        source_(data.source),
        vocab_size_(model.network().vocab_size),
        scorer_(model, options.lengths, options.chunk),
        sums_(data.vocabulary.unk, sink) {
    if (ends_lines() && !eos_) {
      throw Error(source_.name, "lines cannot be told apart: the vocabulary has no <eos>",
                  "encode with a vocabulary that has one, or use --per document");
    }
    evaluation.batch = 1;
    evaluation_options_.unknown = data.vocabulary.unk;
    evaluation_options_.sink = [this](std::int64_t position, const double* losses,
                                      std::int64_t count) {
      sums_.put_losses(position, losses, count);
    };
  }

  void begin_document() override {
    scorer_.put_document(tokens_);
    if (options_.unit == Unit::kDocument && tokens_ > 0) {
      sums_.end_unit();
    }
  }
  void write(const shard::TokenId* ids, std::size_t count) override {
    wide_.assign(ids, ids + count);
    const auto tokens = static_cast<std::int64_t>(count);
    check_ids(source_, tokens_, wide_.data(), tokens, vocab_size_);
    for (const std::int64_t id : wide_) {
      put_token(id);
    }
    scorer_.put(wide_.data(), tokens, adder());
  }

  // Nothing more has come: what can be said is said.
  void catch_up() {
    if (options_.unit != Unit::kWhole) {
      scorer_.put_waiting(adder());
    }
  }

  void finish(const std::optional<shard::TextCounts>& /*counts*/) override {
    if (options_.unit == Unit::kWhole) {
      check_length({source_.name, tokens_, {}});
    }
    if (tokens_ == 0) {
      throw Error(source_.name, "expected at least 1 token, found 0",
                  "an empty text has no lines or documents to score: look at what made it");
    }
    scorer_.finish(adder());
    sums_.finish();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    evaluation.seconds = elapsed.count();
  }

  Evaluation evaluation;

 private:
  bool ends_lines() const {
    return options_.unit == Unit::kLine || options_.unit == Unit::kDoubledLine;
  }
  // Called for every chunk, of which there may be many between two calls of put().
  TargetSink adder() {
    return [this](std::int64_t position, const std::int64_t* ids, const double* losses,
                  std::int64_t count) {
      add_losses(position, ids, losses, count, evaluation_options_, evaluation);
      if (options_.progress) {
        options_.progress(evaluation.targets);
      }
      check_for_stop();
    };
  }
  void put_token(std::int64_t id) {
    ++tokens_;
    sums_.put_token(id);
    if (!ends_lines()) {
      return;
    }
    // Any token opens a line, not <eos> alone: a stream that begins inside a line is off only
    // there.
    const bool opens = options_.unit == Unit::kDoubledLine && !inside_;
    const bool ends = !opens && id == static_cast<std::int64_t>(*eos_);
    inside_ = !ends;
    if (ends) {
      sums_.end_unit();
    }
  }

  const UnitOptions& options_;
  std::optional<shard::TokenId> eos_;
  TokenSource source_;
  std::int64_t vocab_size_;
  StreamScorer scorer_;
  UnitSums sums_;
  EvaluationOptions evaluation_options_;
  std::vector<std::int64_t> wide_;
  std::int64_t tokens_ = 0;
  bool inside_ = false;  // of a line
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

UnitStudy score_units(const nn::Model& model, const std::string& model_name,
                      const std::optional<shard::VocabularyInfo>& trained_with,
                      const std::string& path, const UnitOptions& options,
                      const UnitSums::Sink& sink) {
  const auto check = [&](const DataSet& data) {
    check_vocabulary(model_name, trained_with, data);
    return data;
  };
  if (path == "-") {
    InputFile input(path);
    shard::TokenStreamReader stream(input);
    DataSet data = check({path, stream.header().vocabulary, {}, {input.name(), 0, {}}});
    Pass pass(model, data, options, sink);
    copy_stream(stream, pass, [&](std::int64_t) {
      if (!input.has_more()) {
        pass.catch_up();
      }
    });
    pass.finish(std::nullopt);
    data.counts = stream.counts();
    data.source.tokens = stream.tokens();
    return {pass.evaluation, data};
  }
  shard::JoinedData folder({path});
  const shard::TokenReader& reader = folder.folders().front();
  const DataSet data =
      check({path, reader.vocabulary(), reader.counts(), {path, reader.tokens(), {}}});
  Pass pass(model, data, options, sink);
  folder.copy({0, reader.tokens()}, 1, pass, [](std::int64_t) {});
  pass.finish(std::nullopt);
  return {pass.evaluation, data};
}

}  // namespace ql::eval
