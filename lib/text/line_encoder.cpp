#include "text/line_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "text/words.h"

namespace ql::text {
namespace {

constexpr std::size_t kShownBytes = 100;

// Returns as much of the text as fits into a message.
std::string shown(std::string_view text) {
  if (text.size() <= kShownBytes) return escaped(text, Among::kQuotes);
  const std::string_view head = text.substr(0, kShownBytes);
  return escaped(head.substr(0, head.size() - incomplete_suffix(head)), Among::kQuotes) + "...";
}

class WordEncoder : public LineEncoder {
 public:
  explicit WordEncoder(const Vocabulary& vocabulary)
      : tokens_(vocabulary.tokens()),
        blanks_(vocabulary.blanks()),
        eos_(vocabulary.eos().value_or(TokenTable::kNone)) {}

  void encode(std::string_view line, std::vector<TokenId>& ids, Unknowns& unknowns,
              FeedTokens) const override {
    std::array<Word, WordSplitter::kMostWords> words;
    WordSplitter splitter(line, blanks_);
    while (const std::size_t count = splitter.next(words.data())) {
      const std::size_t begin = ids.size();
      ids.resize(begin + count);
      TokenId* found = ids.data() + begin;
      tokens_.find(line, words.data(), count, found);
      for (std::size_t i = 0; i < count; ++i) {
        if (found[i] == TokenTable::kNone) {
          found[i] = unknowns.replace(words[i].view());
        } else if (found[i] == eos_) {
          found[i] = unknowns.replace_reserved(words[i].view());
        }
      }
    }
  }

 private:
  const TokenTable& tokens_;
  Blanks blanks_;
  TokenId eos_;  // kNone: there is none
};

class CharEncoder : public LineEncoder {
 public:
  explicit CharEncoder(const Vocabulary& vocabulary)
      : id_of_(kLastCodePoint + 1, TokenTable::kNone) {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      if (!vocabulary.is_special(id)) id_of_[code_point_at(vocabulary.token(id), 0).value] = id;
    }
  }

  void encode(std::string_view line, std::vector<TokenId>& ids, Unknowns& unknowns,
              FeedTokens) const override {
    for (std::size_t position = 0; position < line.size();) {
      const CodePoint point = code_point_at(line, position);
      const TokenId id = id_of_[point.value];
      ids.push_back(
          id != TokenTable::kNone ? id : unknowns.replace(line.substr(position, point.length)));
      position += point.length;
    }
  }

 private:
  std::vector<TokenId> id_of_;  // by code point
};

class ByteEncoder : public LineEncoder {
 public:
  explicit ByteEncoder(const Vocabulary& vocabulary) : id_of_() {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      if (!vocabulary.is_special(id)) id_of_[*parse_byte_token(vocabulary.token(id))] = id;
    }
  }

  void encode(std::string_view line, std::vector<TokenId>& ids, Unknowns&,
              FeedTokens) const override {
    for (const char c : line) ids.push_back(id_of_[static_cast<unsigned char>(c)]);
  }

 private:
  std::array<TokenId, 256> id_of_;
};

// Hands lines to the library in parts where the model keeps text as it is: the library needs memory
// and time for all it gets, and it takes a U+2581 in the text for a blank. A model with rules of
// its own gets complete lines, because its rules look at where they begin and end.
class PieceEncoder : public LineEncoder {
 public:
  explicit PieceEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void encode(std::string_view line, std::vector<TokenId>& ids, Unknowns& unknowns,
              FeedTokens feeds) const override {
    if (!vocabulary_.model().keeps_text() && vocabulary_.model().line_feed() &&
        (feeds.before || feeds.after)) {
      add_between(line, feeds, ids, unknowns);
      return;
    }
    if (!vocabulary_.model().keeps_text()) {
      add(line, ids, unknowns);
      return;
    }
    for (;;) {
      const std::size_t end = line.find(kPieceBlank);
      encode_plain(line.substr(0, end), ids, unknowns);
      if (end == std::string_view::npos) return;
      encode_bytes(kPieceBlank, ids, unknowns);
      line.remove_prefix(end + kPieceBlank.size());
    }
  }
  void encode_line_end(std::vector<TokenId>& ids, Unknowns& unknowns) const override {
    if (const auto feed = vocabulary_.model().line_feed()) {
      ids.push_back(*feed);
    } else {
      encode_bytes("\n", ids, unknowns);
    }
  }

 private:
  void encode_plain(std::string_view text, std::vector<TokenId>& ids, Unknowns& unknowns) const {
    while (!text.empty()) {
      const std::size_t size = sentencepiece_part(text);
      add(text.substr(0, size), ids, unknowns);
      text.remove_prefix(size);
    }
  }

  void add(std::string_view text, std::vector<TokenId>& ids, Unknowns& unknowns) const {
    const std::size_t begin = ids.size();
    vocabulary_.model().encode(text, ids);
    replace_unknown(begin, text, ids, unknowns);
  }

  // Looks at the ids from place `begin` on, which are those of `text`.
  void replace_unknown(std::size_t begin, std::string_view text, std::vector<TokenId>& ids,
                       Unknowns& unknowns) const {
    std::for_each(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), [&](TokenId& id) {
      if (id == vocabulary_.unk()) id = unknowns.replace(text);
    });
  }

  // A model that has a piece for the line feed gets the line feeds around a line, too: its rules
  // for the beginning and the end of a text must not change the ends of a line inside.
  void add_between(std::string_view line, FeedTokens feeds, std::vector<TokenId>& ids,
                   Unknowns& unknowns) const {
    std::string text(line);
    if (feeds.before) text.insert(0, 1, '\n');
    if (feeds.after) text += '\n';
    std::vector<TokenId> found;
    vocabulary_.model().encode(text, found);
    const TokenId feed = *vocabulary_.model().line_feed();
    // The rules may not let line feeds through.
    if (std::count(found.begin(), found.end(), feed) != feeds.before + feeds.after) {
      add(line, ids, unknowns);
      return;
    }
    if (feeds.after) {
      found.erase(std::find(found.rbegin(), found.rend(), feed).base() - 1, found.end());
    }
    if (feeds.before) found.erase(found.begin(), std::find(found.begin(), found.end(), feed) + 1);
    const std::size_t begin = ids.size();
    ids.insert(ids.end(), found.begin(), found.end());
    replace_unknown(begin, line, ids, unknowns);
  }

  // Bytes that the library must not see: as byte pieces, or <unk> where the model has none.
  void encode_bytes(std::string_view bytes, std::vector<TokenId>& ids, Unknowns& unknowns) const {
    for (const char c : bytes) {
      const std::uint32_t id = vocabulary_.find(byte_token(static_cast<unsigned char>(c)));
      if (id == TokenTable::kNone || !vocabulary_.model().is_byte(id)) {
        ids.push_back(unknowns.replace(bytes));
        return;
      }
      ids.push_back(id);
    }
  }

  const Vocabulary& vocabulary_;
};

}  // namespace

TokenId Unknowns::replace(std::string_view text) {
  const bool allowed = rule_ == UnknownRule::kUnk;
  if (!allowed || !vocabulary_.unk()) {
    throw Error(fmt::format("{}: line {}", *file_, line_),
                fmt::format("'{}' is outside the vocabulary{}", shown(text),
                            allowed ? ", which has no <unk>" : ""),
                allowed ? "make the vocabulary with --unk always, or from this text"
                        : "give --unknown unk to encode it as <unk>");
  }
  ++count_;
  if (texts_.size() < kMostTexts) {
    std::string text_shown = shown(text);
    if (std::find(texts_.begin(), texts_.end(), text_shown) == texts_.end()) {
      texts_.push_back(std::move(text_shown));
    }
  }
  return *vocabulary_.unk();
}

TokenId Unknowns::replace_reserved(std::string_view text) {
  ++reserved_;
  return replace(text);
}

std::unique_ptr<const LineEncoder> make_line_encoder(const Vocabulary& vocabulary) {
  switch (vocabulary.type()) {
    case TokenType::kWord:
      return std::make_unique<WordEncoder>(vocabulary);
    case TokenType::kChar:
      return std::make_unique<CharEncoder>(vocabulary);
    case TokenType::kByte:
      return std::make_unique<ByteEncoder>(vocabulary);
    case TokenType::kSentencePiece:
      return std::make_unique<PieceEncoder>(vocabulary);
    case TokenType::kPiece:
      throw Error("the vocabulary", "its tokens are only names: nothing says how text becomes them",
                  "encode with the program that made it, and take the ids with qlbin import");
  }
  throw std::logic_error("an unknown vocabulary type");
}

}  // namespace ql::text
