#include "eval/score_units.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/signals.h"
#include "eval/losses.h"
#include "eval/stream_scorer.h"
#include "eval/token_check.h"
#include "shard/token_reader.h"
#include "shard/token_stream.h"

namespace ql::eval {
namespace {

constexpr std::int64_t kTokensPerRead = 65536;

// One pass over a stream: tokens go to the scorer, their losses to the sums of units.
class Pass {
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

  // The next tokens; `starts` are the positions among them where documents begin, for what reads
  // documents.
  template <typename Id, typename Start>
  void put(const std::vector<Id>& ids, const std::vector<Start>& starts) {
    check_for_stop();
    wide_.assign(ids.begin(), ids.end());
    const auto count = static_cast<std::int64_t>(wide_.size());
    check_ids(source_, tokens_, wide_.data(), count, vocab_size_);
    for (const Start position : starts) {
      scorer_.put_document(tokens_ + static_cast<std::int64_t>(position));
    }
    auto start = starts.begin();
    for (std::int64_t i = 0; i < count; ++i) {
      for (; start != starts.end() && static_cast<std::int64_t>(*start) == i; ++start) {
        begin_document();
      }
      put_token(wide_[static_cast<std::size_t>(i)]);
    }
    for (; start != starts.end(); ++start) {
      begin_document();
    }
    scorer_.put(wide_.data(), count, adder());
  }

  // Nothing more has come: what can be said is said.
  void catch_up() {
    if (options_.unit != Unit::kWhole) {
      scorer_.put_waiting(adder());
    }
  }

  void finish() {
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
  void begin_document() {
    if (options_.unit == Unit::kDocument && documents_++ > 0) {
      sums_.end_unit();
    }
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
  std::int64_t tokens_ = 0, documents_ = 0;
  bool inside_ = false;  // of a line
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void put_all(shard::TokenReader& reader, bool with_documents, Pass& pass) {
  static const std::vector<std::int64_t> kNone;
  const std::vector<std::int64_t>& all = with_documents ? reader.document_starts() : kNone;
  auto next = all.begin();
  std::vector<std::int64_t> starts, ids;
  for (std::int64_t begin = 0; begin < reader.tokens(); begin += kTokensPerRead) {
    const std::int64_t count = std::min(kTokensPerRead, reader.tokens() - begin);
    ids.resize(static_cast<std::size_t>(count));
    reader.read(begin, count, ids.data());
    starts.clear();
    // Those at the very end of the data belong to documents without a token.
    for (; next != all.end() && (*next < begin + count || begin + count == reader.tokens());
         ++next) {
      starts.push_back(*next - begin);
    }
    pass.put(ids, starts);
  }
}

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
    shard::TokenStreamReader::Block block;
    while (stream.next(block)) {
      pass.put(block.ids, block.document_starts);
      if (!input.has_more()) {
        pass.catch_up();
      }
    }
    pass.finish();
    data.counts = stream.counts();
    data.source.tokens = stream.tokens();
    return {pass.evaluation, data};
  }
  shard::TokenReader reader(path);
  const DataSet data =
      check({path, reader.vocabulary(), reader.counts(), {path, reader.tokens(), {}}});
  Pass pass(model, data, options, sink);
  const bool with_documents =
      options.unit == Unit::kDocument || model.network().reset_memory_at_documents;
  put_all(reader, with_documents, pass);
  pass.finish();
  return {pass.evaluation, data};
}

}  // namespace ql::eval
