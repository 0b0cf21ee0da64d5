// Turns tokens into text, and writes the spaces and line ends between them.

#include "text/decoder.h"

namespace ql::text {

PieceWriter::PieceWriter(const Vocabulary& vocabulary, EosRule eos, Sink sink)
    : vocabulary_(vocabulary), eos_(eos), sink_(std::move(sink)) {}

void PieceWriter::begin_document() {
  if (!line_empty_) sink_("\n");
  line_empty_ = true;
}

void PieceWriter::write(const TokenId* ids, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const bool ends = ends_line(ids[i]);
    if (!line_empty_) text += ' ';
    text += shown(ids[i]);
    if (ends) text += '\n';
    line_empty_ = ends;
  }
  sink_(text);
}

void PieceWriter::finish(const std::optional<shard::TextCounts>& /*counts*/) { begin_document(); }

std::string PieceWriter::shown(TokenId id) const {
  const std::string_view token = vocabulary_.token(id);
  if (vocabulary_.type() != TokenType::kByte || vocabulary_.is_special(id)) return escaped(token);
  return escaped(std::string(1, static_cast<char>(*parse_byte_token(token))));
}

bool PieceWriter::ends_line(TokenId id) const {
  // With EosRule::kDouble the <eos> at the beginning of a line does not end the line.
  if (id == vocabulary_.eos()) return eos_ != EosRule::kDouble || !line_empty_;
  // A word never ends a line, not even one that is spelled <0x0A>.
  if (vocabulary_.type() == TokenType::kWord || vocabulary_.is_special(id)) return false;
  const std::string_view token = vocabulary_.token(id);
  return token == "\n" || token == "<0x0A>";
}

constexpr std::size_t kPassOnBytes = std::size_t{64} * 1024;

Decoder::Decoder(DecodedTokens tokens, DecodeOptions options, Sink sink)
    : tokens_(std::move(tokens)),
      options_(options),
      sink_(std::move(sink)),
      blanks_(tokens_.blanks) {}

void Decoder::write(const TokenId* ids, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const TokenId id = ids[i];
    if (id >= tokens_.texts.size()) {
      throw Error("",
                  fmt::format("token id {} is outside the vocabulary of {} entries", id,
                              tokens_.texts.size()),
                  "give the vocabulary that the text was encoded with");
    }
    if (id == tokens_.eos) {
      add_eos();
    } else if (tokens_.words) {
      add_word(tokens_.texts[id]);
    } else {
      add_text(tokens_.texts[id]);
    }
    if (text_.size() >= kPassOnBytes) pass_on();
  }
  pass_on();
}

void Decoder::write_beginning(TokenId id, std::size_t bytes) {
  add_text(std::string_view(tokens_.texts.at(id)).substr(0, bytes));
  pass_on();
}

void Decoder::begin_document() {
  if (tokens_.words && !line_empty_) end_line();
  blanks_.begin_document();
}

void Decoder::finish(const std::optional<shard::TextCounts>& /*counts*/) {
  begin_document();
  pass_on();
}

void Decoder::add_text(std::string_view text) {
  if (text.empty()) return;
  line_open_ = true;
  blanks_.append(text, text_);
}

void Decoder::add_word(std::string_view word) {
  const bool padded = options_.line_style == LineStyle::kPadded;
  if (padded ? line_empty_ : !line_empty_) text_.push_back(' ');
  text_.append(word);
  if (padded) text_.push_back(' ');
  line_empty_ = false;
  line_open_ = true;
}

// With kDouble, <eos> tokens alternate: one before a line, one after it.
void Decoder::add_eos() {
  if (options_.eos == EosRule::kDouble && !line_open_) {
    line_open_ = true;
    return;
  }
  if (tokens_.words && line_empty_ && options_.line_style == LineStyle::kPadded) {
    text_.push_back(' ');
  }
  blanks_.eos();
  end_line();
}

void Decoder::end_line() {
  text_.push_back('\n');
  line_empty_ = true;
  line_open_ = false;
}

void Decoder::pass_on() {
  if (text_.empty()) return;
  // If the sink throws, the text counts as passed on.
  std::string text;
  text.swap(text_);
  sink_(text);
  text.clear();
  text_.swap(text);
}

}  // namespace ql::text
