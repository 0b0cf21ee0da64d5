// Validates text, encodes lines by the type of the vocabulary, and encodes the blocks of files in
// order.

#include "text/encoder.h"

namespace ql::text {

LineCut line_cut(TokenType type, bool lowercase, Blanks blanks) {
  if (type == TokenType::kSentencePiece) return LineCut::kNever;
  if (type == TokenType::kWord && blanks == Blanks::kUnicode) return LineCut::kAtUnicodeBlank;
  if (type == TokenType::kWord || lowercase) return LineCut::kAtBlank;
  return type == TokenType::kByte ? LineCut::kAnywhere : LineCut::kAtCodePoint;
}

void validate_text(TextBlock& block, TokenType type, InvalidText invalid) {
  if (type == TokenType::kByte) return;
  const std::size_t bad = find_invalid_utf8(block.text);
  if (bad == std::string_view::npos) return;
  if (invalid == InvalidText::kReplace) {
    block.text = replace_invalid_utf8(block.text);
    return;
  }
  const auto line =
      block.place.line + std::count(block.text.begin(), block.text.begin() + bad, '\n');
  throw FormatError(fmt::format("{}: line {}", block.place.file, line),
                    fmt::format("invalid UTF-8: byte 0x{:02X} at offset {} of the file's text",
                                static_cast<unsigned char>(block.text[bad]),
                                block.place.offset + static_cast<std::int64_t>(bad)),
                    "convert the text with iconv, give --invalid replace, or make the vocabulary "
                    "with --type byte");
}

void remove_mark(TextBlock& block, TokenType type) {
  if (type != TokenType::kWord || block.place.offset != 0 || !begins_with_mark(block.text)) return;
  block.text.erase(0, kByteOrderMark.size());
  block.place.offset += static_cast<std::int64_t>(kByteOrderMark.size());
}

namespace {

constexpr std::size_t kShownBytes = 100;

// Returns the text escaped for a message, but only the beginning of a long text.
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
  TokenId eos_;  // kNone if the vocabulary has no <eos>
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

// If the model keeps text unchanged, text is passed to the SentencePiece library in parts, because
// the library's memory and time grow with the text of a call. In this case U+2581 is encoded here,
// as bytes or <unk>, because the library would take it for a space. A model that rewrites text gets
// complete lines, because its rules depend on where lines begin and end.
class PieceEncoder : public LineEncoder {
 public:
  explicit PieceEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    const SentencePieceModel& model = vocabulary.model();
    const std::uint32_t space = vocabulary.find(byte_token(' '));
    if (!model.keeps_text() || vocabulary.find(kPieceBlank) != TokenTable::kNone ||
        space == TokenTable::kNone || !model.is_byte(space)) {
      return;
    }
    space_ = space;
    for (const char c : kPieceBlank) {
      mark_.push_back(vocabulary.find(byte_token(static_cast<unsigned char>(c))));
    }
  }

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
    if (space_) restore_spaces(begin, ids);
    replace_unknown(begin, text, ids, unknowns);
  }

  // If U+2581 has no piece, the library encodes a space as the bytes of U+2581. Replaces them by
  // the byte of a space, from index `begin` on, so that decoding gives the space.
  void restore_spaces(std::size_t begin, std::vector<TokenId>& ids) const {
    const auto size = static_cast<std::ptrdiff_t>(mark_.size());
    auto end = ids.begin() + static_cast<std::ptrdiff_t>(begin);
    for (auto from = end; from != ids.end();) {
      const bool mark = ids.end() - from >= size && std::equal(mark_.begin(), mark_.end(), from);
      *end++ = mark ? *space_ : *from;
      from += mark ? size : 1;
    }
    ids.erase(end, ids.end());
  }

  // Reports each <unk> in `ids` to `unknowns`, beginning at index `begin`. The ids from this index
  // on are those of `text`.
  void replace_unknown(std::size_t begin, std::string_view text, std::vector<TokenId>& ids,
                       Unknowns& unknowns) const {
    std::for_each(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), [&](TokenId& id) {
      if (id == vocabulary_.unk()) id = unknowns.replace(text);
    });
  }

  // Encodes a line together with the line feeds around it, then drops the tokens of these line
  // feeds. So the model's rules for the beginning and the end of a text do not change an inner
  // line. The model must have a piece for the line feed.
  void add_between(std::string_view line, FeedTokens feeds, std::vector<TokenId>& ids,
                   Unknowns& unknowns) const {
    std::string text(line);
    if (feeds.before) text.insert(0, 1, '\n');
    if (feeds.after) text += '\n';
    std::vector<TokenId> found;
    vocabulary_.model().encode(text, found);
    const TokenId feed = *vocabulary_.model().line_feed();
    // The model's rules may have removed line feeds. Then the line is encoded alone.
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

  // Encodes bytes that the library must not see: as byte pieces, or as <unk> if the model has no
  // byte pieces.
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
  std::optional<TokenId> space_;  // the byte piece of a space, if U+2581 has no piece
  std::vector<TokenId> mark_;     // the byte pieces of U+2581
};

}  // namespace

TokenId Unknowns::replace(std::string_view text) {
  const bool allowed = rule_ == UnknownRule::kUnk;
  if (!allowed || !vocabulary_.unk()) {
    // The token <eos> stands for line ends only. If the text contains <eos> as a word, the message
    // says why this word is unknown. For type sentencepiece the message shows the beginning of the
    // encoded text, because the library does not state which part became <unk>.
    const bool is_eos = vocabulary_.type() == TokenType::kWord && vocabulary_.eos() &&
                        text == vocabulary_.token(*vocabulary_.eos());
    const char* fault = vocabulary_.type() == TokenType::kSentencePiece ? "has text" : "is";
    if (is_eos) fault = "stands for line ends, so the word is";
    throw Error(fmt::format("{}: line {}", *file_, line_),
                fmt::format("'{}' {} outside the vocabulary{}", shown(text), fault,
                            vocabulary_.unk() ? "" : ", which has no <unk>"),
                vocabulary_.unk() ? "give --unknown unk to encode it as <unk>"
                                  : "remove this text, or make the vocabulary with --unk "
                                    "always (an imported one with --unk-token)");
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
      throw Error(
          "the vocabulary",
          "its type is piece: it has tokens, but no rules to split text into them",
          "encode with the program that the tokens come from, and read its ids with qlbin import");
  }
  throw std::logic_error("an unknown vocabulary type");
}

// A word and its whitespace have about this length. The memory for ids is reserved accordingly.
constexpr std::size_t kBytesPerToken = 4;

Encoder::Encoder(const Vocabulary& vocabulary, EncodeOptions options)
    : vocabulary_(vocabulary), options_(std::move(options)), lines_(make_line_encoder(vocabulary)) {
  if (options_.eos != EosRule::kNone && !vocabulary_.eos()) {
    throw UsageError("--eos", "the vocabulary has no <eos>",
                     "give --eos none, or make the vocabulary with --eos always (if imported, with "
                     "--eos-token)");
  }
}

EncodedBlock Encoder::encode(TextBlock block) const {
  EncodedBlock encoded;
  encoded.counts.bytes = static_cast<std::int64_t>(block.text.size());
  encoded.counts.words = count_word_starts(block.place.without_mark(block.text),
                                           block.place.continues_word, vocabulary_.blanks());
  validate_text(block, vocabulary_.type(), options_.invalid);
  encoded.counts.characters = count_code_points(block.text);
  remove_mark(block, vocabulary_.type());
  std::string lowered;
  if (vocabulary_.lowercase()) lowered = lowercase(block.text);
  encode_lines(block, vocabulary_.lowercase() ? lowered : block.text, encoded);
  return encoded;
}

// `text` is block.text or its lower-cased form, which has the same lines.
void Encoder::encode_lines(const TextBlock& block, std::string_view text,
                           EncodedBlock& encoded) const {
  std::vector<TokenId>& ids = encoded.ids;
  ids.reserve(text.size() / kBytesPerToken);
  Unknowns unknowns(vocabulary_, options_.unknown);
  TextPlace place = block.place;
  // `begins` is true if the next line is the first line of a document, or the first line of the
  // complete input.
  bool begins = place.starts_file && options_.documents.at_files();
  if (begins) encoded.document_starts.push_back(0);
  begins = begins || !place.lines_before.any;
  LineSplitter original(block.text), lines(text);
  while (original.next() && lines.next()) {
    unknowns.set_place(&place.file, place.line);
    if (!place.continues_line) {
      const std::string_view line = place.without_mark(original.line());
      if (options_.documents.begins_at(line, place.lines_before, place.blanks)) {
        encoded.document_starts.push_back(ids.size());
        begins = true;
      }
      if (options_.eos == EosRule::kDouble) ids.push_back(*vocabulary_.eos());
    }
    const bool feeds = options_.eos == EosRule::kNone;
    lines_->encode(lines.line(), ids, unknowns, {feeds && !begins, feeds && lines.ended()});
    begins = false;
    if (lines.ended()) end_line(ids, unknowns);
    place.pass(original.line(), lines.ended());
  }
  encoded.counts.lines = place.line - block.place.line;
  if (place.continues_line && block.ends_file) {
    ++encoded.counts.lines;
    if (vocabulary_.type() == TokenType::kWord) end_line(ids, unknowns);
  }
  encoded.counts.unknown = unknowns.count();
  encoded.reserved = unknowns.reserved();
  encoded.unknown_texts = unknowns.texts();
}

void Encoder::end_line(std::vector<TokenId>& ids, Unknowns& unknowns) const {
  if (options_.eos == EosRule::kNone) {
    lines_->encode_line_end(ids, unknowns);
  } else {
    ids.push_back(*vocabulary_.eos());
  }
}

namespace {

// Adds up the counts of blocks and passes their ids on. begin_document() is passed on only with the
// first token of the document.
class Collector : public shard::TokenSink {
 public:
  Collector(const Encoder& encoder, shard::TokenSink& sink)
      : unk_(encoder.vocabulary().unk()), sink_(sink) {}

  void add(const EncodedBlock& block) {
    shard::send_tokens(block.ids.data(), block.ids.size(), block.document_starts, *this);
    totals_.counts = totals_.counts + block.counts;
    totals_.reserved += block.reserved;
    if (unk_) totals_.unk += std::count(block.ids.begin(), block.ids.end(), *unk_);
  }
  const EncodeTotals& totals() const { return totals_; }

  void begin_document() override { document_pending_ = true; }
  void write(const TokenId* ids, std::size_t count) override {
    if (count == 0) return;
    if (document_pending_) {
      sink_.begin_document();
      ++totals_.documents;
      document_pending_ = false;
    }
    sink_.write(ids, count);
    totals_.tokens += static_cast<std::int64_t>(count);
  }

 private:
  std::optional<TokenId> unk_;
  shard::TokenSink& sink_;
  EncodeTotals totals_;
  bool document_pending_ = true;  // the first token begins a document in any case
};

}  // namespace

EncodeTotals encode_files(const std::vector<std::string>& files, const Encoder& encoder,
                          int threads, shard::TokenSink& sink,
                          const std::function<void()>& after_block, std::size_t block_bytes) {
  TextReader reader(files, encoder.cut(), block_bytes, TextReader::kLongestUnit, encoder.content());
  Collector collector(encoder, sink);
  work_on_blocks(
      reader, threads, [&encoder](TextBlock block) { return encoder.encode(std::move(block)); },
      [&](const EncodedBlock& block) {
        collector.add(block);
        after_block();
      });
  return collector.totals();
}

}  // namespace ql::text
