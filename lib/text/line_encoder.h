// Text to ids, one line at a time: the part of encoding that differs between the vocabulary types.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ql::text {

// Text outside the vocabulary becomes <unk> or is an error.
enum class UnknownRule { kUnk, kError };
constexpr auto names_of(UnknownRule) { return std::array{"unk", "error"}; }

// Collects what was outside the vocabulary and decides what it becomes.
class Unknowns {
 public:
  static constexpr std::size_t kMostTexts = 9;

  Unknowns(const Vocabulary& vocabulary, UnknownRule rule) : vocabulary_(vocabulary), rule_(rule) {}
  // Messages name this place of the text.
  void set_place(const std::string* file, std::int64_t line) {
    file_ = file;
    line_ = line;
  }
  // The id for `text`: <unk>. Throws Error that names file, line and text where that is not wanted
  // or the vocabulary has no <unk>.
  TokenId replace(std::string_view text);
  // The word in the text looks like the <eos> of the vocabulary, which stands for line ends.
  TokenId replace_reserved(std::string_view text);

  std::int64_t count() const { return count_; }        // all of them
  std::int64_t reserved() const { return reserved_; }  // by replace_reserved
  // The first kMostTexts different ones, as messages show them.
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  const Vocabulary& vocabulary_;
  UnknownRule rule_;
  const std::string* file_ = nullptr;
  std::int64_t line_ = 0;
  std::int64_t count_ = 0, reserved_ = 0;
  std::vector<std::string> texts_;
};

// Says which ends of a line are line feeds that become tokens of the same document.
struct FeedTokens {
  bool before = false, after = false;
};

// Safe from several threads; keeps a reference to the vocabulary.
class LineEncoder {
 public:
  virtual ~LineEncoder() = default;
  // Appends the ids of a line or of a piece of one (see LineCut), without its line end.
  virtual void encode(std::string_view line, std::vector<TokenId>& ids, Unknowns& unknowns,
                      FeedTokens feeds = {}) const = 0;
  // Appends what a line end becomes when it does not become <eos>: for words it is a blank.
  virtual void encode_line_end(std::vector<TokenId>& ids, Unknowns& unknowns) const {
    encode("\n", ids, unknowns);
  }
};

std::unique_ptr<const LineEncoder> make_line_encoder(const Vocabulary& vocabulary);

}  // namespace ql::text
