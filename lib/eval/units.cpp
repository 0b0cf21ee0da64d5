// Adds up the losses of lines, documents and words, and reads a stream once to find and score them.

#include "eval/units.h"

#include "base/stopwatch.h"
#include "base/strings.h"
#include "eval/independent_scorer.h"
#include "shard/same_vocabulary.h"

namespace ql::eval {

UnitSums::UnitSums(std::optional<shard::TokenId> unknown, Sink sink)
    : unknown_(unknown), sink_(std::move(sink)) {}

void UnitSums::put_token(std::int64_t id, bool is_target) {
  ++position_;
  open_ = true;
  if (!is_target) return;
  unit_.end = position_;
  if (unknown_ && id == static_cast<std::int64_t>(*unknown_)) ++unit_.unknown_targets;
}

void UnitSums::end_unit(std::optional<std::string> text) {
  unit_.text = std::move(text);
  ended_.push_back(std::move(unit_));
  unit_.unknown_targets = 0;
  open_ = false;
  hand_over_scored();
}

void UnitSums::put_losses(std::int64_t position, const double* losses, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sum_.nll += losses[i];
    ++sum_.targets;
    scored_ = position + i + 1;
    hand_over_scored();
  }
}

void UnitSums::finish() {
  if (open_) end_unit();
  while (!ended_.empty()) hand_over();
}

void UnitSums::hand_over_scored() {
  while (!ended_.empty() && ended_.front().end <= scored_) hand_over();
}

void UnitSums::hand_over() {
  ++sum_.number;
  sum_.unknown_targets = ended_.front().unknown_targets;
  sum_.text = std::move(ended_.front().text);
  ended_.pop_front();
  sink_(sum_);
  sum_.targets = 0;
  sum_.nll = 0;
}

void check_begin(std::int64_t id, std::int64_t vocab_size) {
  if (id < vocab_size) return;
  throw UsageError("--begin",
                   fmt::format("the id {} is outside the vocabulary of {} entries", id, vocab_size),
                   fmt::format("give an id from 0 to {}, or --begin none", vocab_size - 1));
}

namespace {

// Finds the ends of lines in a stream.
class LineEnds {
 public:
  LineEnds(shard::TokenId line_end, bool doubled) : line_end_(line_end), doubled_(doubled) {}

  // Takes a token; returns true if it ends a line.
  bool after(std::int64_t id) {
    // If `doubled_`, a line begins and ends with <eos>, but its first token is not checked. So if a
    // stream begins between the two <eos> of a line, the second one ends this line, and all later
    // lines are found.
    const bool opens = doubled_ && !inside_;
    inside_ = opens || id != static_cast<std::int64_t>(line_end_);
    return !inside_;
  }

 private:
  shard::TokenId line_end_;
  bool doubled_;
  bool inside_ = false;  // the current line has not ended
};

// Finds the words in a stream of tokens. A token that begins with whitespace begins a word, and a
// token that ends with whitespace ends a word. A token of whitespace alone belongs to the next
// word; if <eos> or a document's end comes first, the token is a word of its own. <eos> is also a
// word of its own, and so is every token of a vocabulary of words.
class Words {
 public:
  Words(TokenTexts bytes, const shard::VocabularyInfo& vocabulary)
      : bytes_(std::move(bytes)), eos_(vocabulary.eos), single_(vocabulary.type == "word") {}

  // Returns true if the word so far is complete before this token.
  bool ends_before(std::int64_t id) const {
    if (!open_) return false;
    if (single_ || alone_ || is_eos(id)) return true;
    const std::string& next = bytes_of(id);
    return has_word_ && !next.empty() && (is_blank(next.front()) || is_blank(text_.back()));
  }
  void put(std::int64_t id) {
    open_ = true;
    alone_ = is_eos(id);
    const std::string& bytes = bytes_of(id);
    has_word_ = has_word_ || bytes.find_first_not_of(kBlanks) != std::string::npos;
    text_ += bytes;
  }
  bool open() const { return open_; }
  bool knows_nothing() const { return bytes_.empty(); }
  // Returns the word without the whitespace around it, and begins a new word.
  std::string take() {
    const std::size_t begin = std::min(text_.find_first_not_of(kBlanks), text_.size());
    const std::size_t end = text_.find_last_not_of(kBlanks);
    std::string word = text_.substr(begin, end == std::string::npos ? 0 : end + 1 - begin);
    text_.clear();
    open_ = alone_ = has_word_ = false;
    return word;
  }

 private:
  static constexpr const char* kBlanks = " \t\n\v\f\r";
  bool is_eos(std::int64_t id) const { return eos_ && id == static_cast<std::int64_t>(*eos_); }
  // Returns "" for an id outside the vocabulary; the scorer refuses such an id.
  const std::string& bytes_of(std::int64_t id) const {
    static const std::string kNone;
    const auto place = static_cast<std::size_t>(id);
    return place < bytes_.size() ? bytes_[place] : kNone;
  }

  TokenTexts bytes_;
  std::optional<shard::TokenId> eos_;
  bool single_;            // every token is a word
  bool open_ = false;      // there are tokens in the word
  bool alone_ = false;     // the last token is <eos>
  bool has_word_ = false;  // the text is more than whitespace
  std::string text_;
};

// Reads a stream once: passes its tokens to a scorer, and adds up their losses for each unit (line,
// document, word).
class UnitScoring : public shard::TokenSink {
 public:
  // `vocabulary_text` returns the content of the vocabulary file, or "" if there is none.
  UnitScoring(const nn::Model& model, const DataSet& data,
              const std::function<std::string()>& vocabulary_text, const UnitOptions& options,
              const UnitSums::Sink& sink)
      : unit_(options.unit),
        reset_at_(options.alone),
        name_(data.source.name),
        sums_(data.vocabulary.unk, sink),
        model_(model, options.lengths) {
    const bool asks = options.alone || unit_ == Unit::kLine || unit_ == Unit::kDoubledLine;
    const std::optional<shard::TokenId> line_end =
        asks ? line_end_of(data.vocabulary, vocabulary_text) : std::nullopt;
    if (unit_ == Unit::kToken) texts_ = read_token_texts(vocabulary_text());
    if (unit_ == Unit::kWord) {
      words_.emplace(read_token_bytes(vocabulary_text()), data.vocabulary);
      if (words_->knows_nothing()) {
        throw Error(name_, "the text of the tokens is unknown, so words cannot be found",
                    "score data that was made with a vocabulary of qltok, or use --per token");
      }
    }
    const auto ends_of = [&](Unit unit) -> std::optional<LineEnds> {
      if (unit != Unit::kLine && unit != Unit::kDoubledLine) return std::nullopt;
      if (!line_end) {
        throw Error(name_, "lines cannot be found: no token is known to be <eos> or a line feed",
                    "give document instead of line or doubled-line, or use a network and data "
                    "whose vocabulary has such a token");
      }
      return LineEnds(*line_end, unit == Unit::kDoubledLine);
    };
    ends_ = ends_of(unit_);
    EvaluationOptions of_scorer = options;
    of_scorer.unknown = data.vocabulary.unk;
    of_scorer.sink = [this, sink = options.token_sink](const ScoredTargets& targets) {
      sums_.put_losses(targets.position, targets.losses, targets.count);
      if (unit_ == Unit::kToken && sink) sink(targets, texts_);
    };
    if (!options.alone) {
      stream_.emplace(model_, name_, of_scorer);
      return;
    }
    ends_alone_ = ends_of(*options.alone);
    const std::optional<shard::TokenId> begin = options.begin.id ? options.begin.id : line_end;
    if (!options.begin.none && !begin) {
      throw Error(name_, "documents need a begin token, but neither <eos> nor line feed is known",
                  "give another token's id with --begin, or give --begin none");
    }
    if (begin) check_begin(*begin, model.network().vocab_size);
    alone_.emplace(model_, name_, options.begin.none ? std::nullopt : begin, of_scorer);
  }

  void begin_document() override {
    if (unit_ == Unit::kDocument && tokens_ > 0) sums_.end_unit();
    end_word();
    if (stream_) stream_->put_document(tokens_);
    if (reset_at_ == Unit::kDocument) alone_->end_unit();
  }
  void write(const shard::TokenId* ids, std::size_t count) override {
    wide_.assign(ids, ids + count);
    for (const std::int64_t id : wide_) {
      if (words_ && words_->ends_before(id)) end_word();
      sums_.put_token(id, alone_ ? alone_->put(id) : tokens_ > 0);
      if (words_) words_->put(id);
      ++tokens_;
      if (ends_ && ends_->after(id)) sums_.end_unit();
      if (ends_alone_ && ends_alone_->after(id)) alone_->end_unit();
    }
    if (stream_) stream_->put(wide_.data(), static_cast<std::int64_t>(count));
  }

  // Scores and reports what has arrived, except for Unit::kWhole. Call this before waiting for more
  // input.
  void catch_up() {
    if (unit_ != Unit::kWhole) scorer().put_waiting();
  }

  void finish(const std::optional<shard::TextCounts>& /*counts*/) override {
    const bool needs_target = unit_ == Unit::kWhole || unit_ == Unit::kToken;
    if (needs_target && !alone_) check_length({name_, tokens_, {}});
    if (tokens_ == 0) {
      throw Error(name_, "expected at least 1 token, found 0",
                  "an empty text has nothing to score: check the program that made it");
    }
    scorer().finish();
    end_word();
    if (unit_ != Unit::kToken) sums_.finish();
  }

  Evaluation evaluation() {
    Evaluation result = scorer().evaluation();
    if (reset_at_) result.reset_at = to_text(*reset_at_);
    result.seconds = watch_.seconds();
    return result;
  }

 private:
  Scorer& scorer() { return alone_ ? static_cast<Scorer&>(*alone_) : *stream_; }
  void end_word() {
    if (words_ && words_->open()) sums_.end_unit(words_->take());
  }

  Unit unit_;
  std::optional<Unit> reset_at_;
  std::string name_;
  UnitSums sums_;
  TokenTexts texts_;            // only for tokens
  std::optional<Words> words_;  // only for words
  nn::ModelAtLengths model_;
  std::optional<LineEnds> ends_, ends_alone_;  // only for lines
  std::optional<StreamScorer> stream_;         // for a stream that is read as one
  std::optional<IndependentScorer> alone_;     // for independent units
  std::vector<std::int64_t> wide_;
  std::int64_t tokens_ = 0;
  Stopwatch watch_;
};

}  // namespace

UnitScores score_units(const nn::Model& model, const std::string& model_name,
                       const std::optional<shard::VocabularyInfo>& trained_with,
                       const std::string& path, const UnitOptions& options,
                       const UnitSums::Sink& sink) {
  const auto check = [&](const DataSet& data) {
    check_vocabulary(model_name, shard::recorded_or_size(trained_with, model.network().vocab_size),
                     data);
    return data;
  };
  if (shard::names_stream(path)) {
    InputFile input(path);
    shard::TokenStreamReader stream(input);
    DataSet data = check({path, stream.header().vocabulary, {}, {input.name(), 0, {}}});
    UnitScoring pass(
        model, data, [&] { return stream.header().vocabulary_text; }, options, sink);
    copy_stream(stream, pass, [&](std::int64_t) {
      if (!input.has_more()) pass.catch_up();
    });
    pass.finish(std::nullopt);
    data.counts = stream.counts();
    data.source.tokens = stream.tokens();
    warn_of_unknown_tokens(data, [&] { return stream.header().vocabulary_text; });
    return {pass.evaluation(), data};
  }
  shard::MultiReader folder({path});
  const DataSet data =
      check({path, folder.vocabulary(), folder.counts(), {path, folder.tokens(), {}}});
  warn_of_unknown_tokens(data, [&] { return folder.vocabulary_text(); });
  UnitScoring pass(
      model, data, [&] { return folder.vocabulary_text(); }, options, sink);
  folder.copy({0, folder.tokens()}, 1, pass, [](std::int64_t) {});
  pass.finish(std::nullopt);
  return {pass.evaluation(), data};
}

std::optional<shard::TokenId> line_end_of(const shard::VocabularyInfo& vocabulary,
                                          const std::function<std::string()>& text) {
  if (vocabulary.eos) return vocabulary.eos;
  if (vocabulary.type.empty() || vocabulary.type == "word") return std::nullopt;
  const TokenTexts tokens = read_token_texts(text());
  auto found = std::find(tokens.begin(), tokens.end(), "\n");
  if (vocabulary.type == "byte" || (vocabulary.type == "sentencepiece" && found == tokens.end())) {
    found = std::find(tokens.begin(), tokens.end(), "<0x0A>");
  }
  if (found == tokens.end()) return std::nullopt;
  return static_cast<shard::TokenId>(found - tokens.begin());
}

}  // namespace ql::eval
