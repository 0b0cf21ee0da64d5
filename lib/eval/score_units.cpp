#include "eval/score_units.h"

#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "eval/stream_scorer.h"
#include "eval/token_check.h"
#include "shard/joined_data.h"
#include "shard/token_stream.h"

namespace ql::eval {
namespace {

// Makes one pass over a stream. Tokens go to the scorer, and their losses to the sums of units.
class Pass : public shard::TokenSink {
 public:
  Pass(const nn::Model& model, const DataSet& data, const UnitOptions& options,
       const UnitSums::Sink& sink)
      : unit_(options.unit),
        eos_(data.vocabulary.eos),
        name_(data.source.name),
        sums_(data.vocabulary.unk, sink),
        model_(model, options.lengths),
        scorer_(model_, name_, evaluation_options(options, data)) {
    if (ends_lines() && !eos_) {
      throw Error(name_, "lines cannot be told apart: the vocabulary has no <eos>",
                  "encode with a vocabulary that has one, or use --per document");
    }
  }

  void begin_document() override {
    scorer_.put_document(tokens_);
    if (unit_ == Unit::kDocument && tokens_ > 0) sums_.end_unit();
  }
  void write(const shard::TokenId* ids, std::size_t count) override {
    wide_.assign(ids, ids + count);
    for (const std::int64_t id : wide_) put_token(id);
    scorer_.put(wide_.data(), static_cast<std::int64_t>(count));
  }

  // Is called when nothing more has come yet: reports everything that is known.
  void catch_up() {
    if (unit_ != Unit::kWhole) scorer_.put_waiting();
  }

  void finish(const std::optional<shard::TextCounts>& /*counts*/) override {
    if (unit_ == Unit::kWhole) check_length({name_, tokens_, {}});
    if (tokens_ == 0) {
      throw Error(name_, "expected at least 1 token, found 0",
                  "an empty text has no lines or documents to score: look at what made it");
    }
    scorer_.finish();
    sums_.finish();
  }

  Evaluation evaluation() const {
    Evaluation result = scorer_.evaluation();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    result.seconds = elapsed.count();
    return result;
  }

 private:
  bool ends_lines() const { return unit_ == Unit::kLine || unit_ == Unit::kDoubledLine; }
  EvaluationOptions evaluation_options(const UnitOptions& options, const DataSet& data) {
    EvaluationOptions result;
    static_cast<Reading&>(result) = options;
    result.unknown = data.vocabulary.unk;
    result.sink = [this](std::int64_t position, const double* losses, std::int64_t count) {
      sums_.put_losses(position, losses, count);
    };
    result.progress = options.progress;
    return result;
  }
  void put_token(std::int64_t id) {
    ++tokens_;
    sums_.put_token(id);
    if (!ends_lines()) return;
    // Any token opens a line, not only <eos>. So a stream that begins inside a line has only this
    // line wrong.
    const bool opens = unit_ == Unit::kDoubledLine && !inside_;
    const bool ends = !opens && id == static_cast<std::int64_t>(*eos_);
    inside_ = !ends;
    if (ends) sums_.end_unit();
  }

  Unit unit_;
  std::optional<shard::TokenId> eos_;
  std::string name_;
  UnitSums sums_;
  nn::ModelAtLengths model_;
  StreamScorer scorer_;
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
      if (!input.has_more()) pass.catch_up();
    });
    pass.finish(std::nullopt);
    data.counts = stream.counts();
    data.source.tokens = stream.tokens();
    return {pass.evaluation(), data};
  }
  shard::JoinedData folder({path});
  const shard::TokenReader& reader = folder.folders().front();
  const DataSet data =
      check({path, reader.vocabulary(), reader.counts(), {path, reader.tokens(), {}}});
  Pass pass(model, data, options, sink);
  folder.copy({0, reader.tokens()}, 1, pass, [](std::int64_t) {});
  pass.finish(std::nullopt);
  return {pass.evaluation(), data};
}

}  // namespace ql::eval
