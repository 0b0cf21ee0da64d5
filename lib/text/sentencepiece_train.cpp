#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "text/sentencepiece_model.h"
#include "text/token_counter_internal.h"

namespace ql::text {
namespace {

// The library compares repeated text as far as a sentence goes: with sentences of 64 KiB it takes
// more than ten times as long for a text with repetitions. Ordinary lines are never cut, because
// that changes the model.
constexpr std::size_t kLongLine = std::size_t{16} * 1024;
constexpr std::size_t kSentence = 1024;
// The library leaves out every sentence with this character, U+2585.
constexpr std::string_view kReserved = "\xE2\x96\x85";

// Feeds the library; it keeps its own copy. In parts, because it leaves out every part with a
// character that it reserves.
class Parts : public sentencepiece::SentenceIterator {
 public:
  // The code points of `hidden` (none where it is empty) come as NUL, which the library does not
  // count and takes for a rare character.
  Parts(const std::vector<std::string_view>& lines, const std::vector<bool>& hidden)
      : lines_(lines), hidden_(hidden) {
    Parts::Next();
  }
  bool done() const override { return done_; }
  void Next() override {
    while (rest_.empty() && next_line_ < lines_.size()) {
      rest_ = lines_[next_line_++];
      longest_ = rest_.size() > kLongLine ? kSentence : kLongLine;
    }
    done_ = rest_.empty();
    const std::size_t size = sentencepiece_part(rest_, longest_);
    part_.clear();
    for (std::size_t i = 0; i < size && !hidden_.empty();) {
      const CodePoint point = code_point_at(rest_, i);
      if (hidden_[point.value]) {
        part_ += '\0';
      } else {
        part_ += rest_.substr(i, point.length);
      }
      i += point.length;
    }
    if (hidden_.empty()) part_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  const std::string& value() const override { return part_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string_view>& lines_;
  const std::vector<bool>& hidden_;
  std::size_t next_line_ = 0;
  std::string_view rest_;    // of the line before next_line_
  std::size_t longest_ = 0;  // sentence of this line
  std::string part_;
  bool done_ = false;
};

// The characters that the library counts, a blank as U+2581: the most frequent ones first, equal
// counts by code point.
std::vector<TokenCount> count_characters(const std::vector<std::string_view>& lines) {
  CharCounter counter;
  const std::vector<bool> none_hidden;
  for (Parts parts(lines, none_hidden); !parts.done(); parts.Next()) {
    const std::string& part = parts.value();
    if (part.find(kReserved) == std::string::npos) counter.add(part, false, false);
  }
  std::vector<TokenCount> counts;
  std::int64_t blanks = 0;
  for (TokenCount& each : counter.counts()) {
    if (each.token == " " || each.token == kPieceBlank) {
      blanks += each.count;
    } else if (each.token != "\t" && each.token[0] != '\0') {
      counts.push_back(std::move(each));
    }
  }
  if (blanks > 0) counts.push_back({std::string(kPieceBlank), blanks});
  std::sort(counts.begin(), counts.end(), [](const TokenCount& a, const TokenCount& b) {
    return a.count != b.count ? a.count > b.count : a.token < b.token;
  });
  return counts;
}

// Returns how many of the most frequent characters make up this part of the text. The library
// compares floats.
std::int64_t characters_for(double coverage, const std::vector<TokenCount>& counts) {
  const double all = std::accumulate(
      counts.begin(), counts.end(), 0.0,
      [](double sum, const TokenCount& each) { return sum + static_cast<double>(each.count); });
  double covered = 0;
  std::int64_t characters = 0;
  for (const TokenCount& each : counts) {
    if (static_cast<float>(covered / all) >= static_cast<float>(coverage)) break;
    covered += static_cast<double>(each.count);
    ++characters;
  }
  return characters;
}

// Fills in all but the model.
TrainedSentencePiece choose_characters(const std::vector<TokenCount>& counts,
                                       const SentencePieceTraining& training) {
  const std::int64_t others = training.byte_pieces ? 258 : 2;
  const std::int64_t room = training.max_size - others;
  TrainedSentencePiece trained;
  trained.characters = static_cast<std::int64_t>(counts.size());
  trained.covered = characters_for(training.coverage.value_or(kUsualCoverage), counts);
  if (trained.covered <= room) return trained;
  if (room < 1) {
    throw ConfigError(
        "--max-size",
        fmt::format("{} pieces leave no room for characters, besides {}", training.max_size,
                    training.byte_pieces ? "<eos>, <unk> and 256 bytes" : "<eos> and <unk>"),
        fmt::format("give at least {}; {} have room for each of the text's {} characters",
                    others + 1, others + trained.characters, trained.characters));
  }
  if (training.coverage) {
    throw ConfigError(
        "--character-coverage",
        fmt::format("{} pieces leave room for {} characters, and {} of the text's {} need one",
                    training.max_size, room, trained.covered, trained.characters),
        fmt::format("give --max-size {} or more, or leave --character-coverage out",
                    others + trained.covered));
  }
  trained.covered = room;
  trained.lowered = true;
  return trained;
}

// Returns which code points have no pieces of their own: those of all but the first `covered`.
std::vector<bool> rare_characters(const std::vector<TokenCount>& counts, std::int64_t covered) {
  std::vector<bool> rare(kLastCodePoint + 1);
  std::for_each(counts.begin() + covered, counts.end(), [&](const TokenCount& each) {
    rare[code_point_at(each.token, 0).value] = true;
    if (each.token == kPieceBlank) rare[' '] = true;
  });
  return rare;
}

}  // namespace

TrainedSentencePiece train_sentencepiece(const std::vector<std::string_view>& lines,
                                         const SentencePieceTraining& training) {
  const std::vector<TokenCount> counts = count_characters(lines);
  if (counts.empty()) {
    throw Error("", "no text to make a vocabulary from", "give a file with words in it");
  }
  TrainedSentencePiece trained = choose_characters(counts, training);
  // The number of threads decides in which order the library adds numbers, so it is fixed: the
  // model must not depend on the machine.
  std::unordered_map<std::string, std::string> settings = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(training.max_size)},
      {"hard_vocab_limit", "false"},
      {"byte_fallback", training.byte_pieces ? "true" : "false"},
      {"eos_id", "0"},
      {"eos_piece", "<eos>"},
      {"unk_id", "1"},
      {"unk_piece", "<unk>"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"max_sentence_length", "1073741824"},
      {"num_threads", "4"},
      {"minloglevel", "3"},
  };
  // The library takes coverages from 0.98 on only, so that rare characters are hidden from it. Its
  // usual coverage stays its own business: it writes settings into the model.
  std::vector<bool> hidden;
  if (training.coverage || trained.lowered) {
    settings["character_coverage"] = "1";
    hidden = rare_characters(counts, trained.covered);
  }
  Parts iterator(lines, hidden);
  const StopAtOnce unheard;  // training takes minutes and does not look at signals
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &trained.model);
  if (status.ok()) return trained;
  // The library's reason names its own source and options.
  throw ConfigError(
      "SentencePiece",
      fmt::format("no vocabulary of {} pieces can be trained on this text", training.max_size),
      "give another --max-size, or more text");
}

}  // namespace ql::text
