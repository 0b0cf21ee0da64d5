#include "text/encoder.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/lines_internal.h"
#include "text/lowercase_internal.h"
#include "text/words.h"

namespace ql::text {
namespace {

// Words and their blanks have about this length. The memory for ids is reserved by it.
constexpr std::size_t kBytesPerToken = 4;

}  // namespace

Encoder::Encoder(const Vocabulary& vocabulary, EncodeOptions options)
    : vocabulary_(vocabulary), options_(std::move(options)), lines_(make_line_encoder(vocabulary)) {
  if (options_.eos != EosRule::kNone && !vocabulary_.eos()) {
    throw UsageError("--eos", "the vocabulary has no <eos>",
                     "give --eos none, or make the vocabulary with --eos always");
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
  const auto begin_document = [&encoded] {
    std::vector<std::size_t>& starts = encoded.document_starts;
    if (starts.empty() || starts.back() != encoded.ids.size()) starts.push_back(encoded.ids.size());
  };
  // The next line begins a document, or all of the text.
  bool begins = place.starts_file && options_.documents.at_files();
  if (begins) begin_document();
  begins = begins || !place.lines_before.any;
  LineSplitter original(block.text), lines(text);
  while (original.next() && lines.next()) {
    unknowns.set_place(&place.file, place.line);
    if (!place.continues_line) {
      const std::string_view line = place.without_mark(original.line());
      if (options_.documents.begins_at(line, place.lines_before, place.blanks)) {
        begin_document();
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

}  // namespace ql::text
