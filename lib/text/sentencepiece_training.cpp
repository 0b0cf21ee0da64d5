// Prepares text and settings for the trainer of the SentencePiece library.

#include "text/sentencepiece_training.h"

#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <unordered_map>

#include "base/bytes.h"
#include "base/error.h"
#include "base/process.h"
#include "text/sentencepiece.h"
#include "text/token_counter.h"

namespace ql::text {

namespace {

// The library compares repeated text up to the end of a sentence. If a text has repetitions,
// training with sentences of 64 KiB takes more than ten times as long as with short ones. So lines
// longer than kLongLine are cut into parts of at most kSentence bytes. Shorter lines are not cut,
// because that would change the model.
constexpr std::size_t kLongLine = std::size_t{16} * 1024;
constexpr std::size_t kSentence = 1024;
// The library drops every sentence with this character, U+2585.
constexpr std::string_view kReserved = "\xE2\x96\x85";

// Returns the size of the name <eos>, <unk> or, if there are byte pieces, of one of their names at
// the beginning of the text; 0 if there is none. The library does not learn from such text.
std::size_t piece_name_size(std::string_view text, bool byte_pieces) {
  for (const std::string_view name : {"<eos>", "<unk>"}) {
    if (text.substr(0, name.size()) == name) return name.size();
  }
  constexpr std::size_t kByteName = 6;  // <0x41>
  return byte_pieces && parse_byte_token(text.substr(0, kByteName)) ? kByteName : 0;
}

// Gives lines to the library, and long lines in parts. The library copies the parts, and drops
// every part that contains kReserved.
class Parts : public sentencepiece::SentenceIterator {
 public:
  // `hidden` marks the code points that are passed as NUL, except in names of pieces; an empty
  // vector marks none. The library neither counts NUL as a character nor gives it a piece.
  Parts(const std::vector<std::string_view>& lines, const std::vector<bool>& hidden,
        bool byte_pieces)
      : lines_(lines), hidden_(hidden), byte_pieces_(byte_pieces) {
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
      const std::size_t name = piece_name_size(rest_.substr(i, size - i), byte_pieces_);
      const std::size_t length = std::max(name, point.length);
      part_ +=
          name == 0 && hidden_[point.value] ? std::string_view("\0", 1) : rest_.substr(i, length);
      i += length;
    }
    if (hidden_.empty()) part_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  const std::string& value() const override { return part_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string_view>& lines_;
  const std::vector<bool>& hidden_;
  bool byte_pieces_;
  std::size_t next_line_ = 0;
  std::string_view rest_;    // the text of the current line after part_
  std::size_t longest_ = 0;  // the limit for a part of this line, in bytes
  std::string part_;
  bool done_ = false;
};

std::string without_piece_names(std::string_view part, bool byte_pieces) {
  std::string text;
  while (!part.empty()) {
    const std::size_t size = piece_name_size(part, byte_pieces);
    if (size == 0) text += part.front();
    part.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return text;
}

// Returns the characters that the library counts, with U+2581 for the space, in descending order of
// count; characters with equal counts are in the order of code points.
std::vector<TokenCount> count_characters(const std::vector<std::string_view>& lines,
                                         bool byte_pieces) {
  CharCounter counter;
  const std::vector<bool> none_hidden;
  for (Parts parts(lines, none_hidden, byte_pieces); !parts.done(); parts.Next()) {
    const std::string& part = parts.value();
    if (part.find(kReserved) != std::string::npos) continue;
    counter.add(part.find('<') == std::string::npos ? part : without_piece_names(part, byte_pieces),
                false, false);
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

// Returns how many of the most frequent characters make up this share of the text. Compares in
// float, as the library does.
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

// Chooses how many characters get pieces. Returns a result that still lacks the model. Throws
// ConfigError when max_size is too small.
TrainedSentencePiece choose_characters(const std::vector<TokenCount>& counts,
                                       const SentencePieceTraining& training) {
  const std::int64_t others = training.byte_pieces ? 258 : 2;
  const std::int64_t room = training.max_size - others;
  TrainedSentencePiece trained;
  trained.characters = static_cast<std::int64_t>(counts.size());
  trained.covered = characters_for(training.coverage.value_or(kUsualCoverage), counts);
  if (trained.covered <= room) return trained;
  if (room < 1) {
    std::string remedy = fmt::format("give at least {}", others + 1);
    if (training.coverage) {
      remedy = fmt::format("give at least {}, which the coverage needs", others + trained.covered);
    } else if (trained.covered > 1) {
      remedy += fmt::format(", or {} for the characters that make up {} % of the text",
                            others + trained.covered, kUsualCoverage * 100);
    }
    throw ConfigError(
        "--max-size",
        fmt::format("{} pieces are too few: {} are needed for {} alone", training.max_size, others,
                    training.byte_pieces ? "<eos>, <unk> and 256 bytes" : "<eos> and <unk>"),
        remedy);
  }
  if (training.coverage) {
    throw ConfigError("--character-coverage",
                      fmt::format("{} pieces leave room for {} of the text's {} distinct "
                                  "characters, but the coverage needs {}",
                                  training.max_size, room, trained.characters, trained.covered),
                      fmt::format("give --max-size {} or more, or leave --character-coverage out",
                                  others + trained.covered));
  }
  trained.covered = room;
  trained.lowered = true;
  return trained;
}

// Marks the code points without pieces of their own: all of `counts` except the first `covered`.
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
  const std::vector<TokenCount> counts = count_characters(lines, training.byte_pieces);
  if (counts.empty()) {
    throw Error("",
                "no text to make a vocabulary from: tabs, NUL and lines with U+2585 are not used",
                "give a file with words in it");
  }
  TrainedSentencePiece trained = choose_characters(counts, training);
  // The order of the library's floating-point sums depends on the thread count, so the thread count
  // is fixed: the model must not depend on the machine.
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
  // The library refuses coverages below 0.98. So if the user gives a coverage, or max_size is too
  // small for kUsualCoverage, rare characters are hidden from the library, which covers all others.
  // Otherwise the setting is left out, because every setting changes the bytes of the model.
  std::vector<bool> hidden;
  if (training.coverage || trained.lowered) {
    settings["character_coverage"] = "1";
    hidden = rare_characters(counts, trained.covered);
  }
  Parts iterator(lines, hidden, training.byte_pieces);
  const StopAtOnce unheard;  // the library trains for minutes and does not check for signals
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &trained.model);
  if (status.ok()) return trained;
  // The library's message names the library's source files and options, so the message is not
  // repeated.
  throw ConfigError(
      "SentencePiece",
      fmt::format("no vocabulary of {} pieces can be trained on this text", training.max_size),
      "give a larger or a smaller --max-size, or more text");
}

}  // namespace ql::text
