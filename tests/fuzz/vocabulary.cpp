// Target: ql-vocabulary(5), and text through accepted vocabularies. Modes: 0 the file; 1 the file,
// whose hash is repaired; 2 a SentencePiece model, which gets its vocabulary file; 3 a vocabulary
// of another program; 7 a list of pieces.
#include <utility>

#include "fuzz/fuzz.h"
#include "fuzz/repair.h"
#include "text/decoder.h"
#include "text/encoder.h"
#include "text/vocabulary.h"
#include "text/vocabulary_import.h"

namespace ql::fuzz {

namespace {

using text::Vocabulary;

// The hash follows from the content, and the message about a wrong hash states the right one.
std::string repaired(std::string json) {
  constexpr std::string_view kBefore = "but the content's hash is ";
  try {
    text::parse_vocabulary(json, "v.json");
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::size_t at = message.rfind(kBefore);
    if (at != std::string::npos) {
      replace_hash(json, "hash", message.substr(at + kBefore.size(), 32));
    }
  }
  return json;
}

std::string file_around(const std::string& serialized) {
  const text::SentencePieceModel model(serialized, "model");
  text::VocabularyContent content;
  content.type = text::TokenType::kSentencePiece;
  content.unk = model.unk();
  for (std::uint32_t id = 0; id < model.size(); ++id) content.tokens.push_back(model.piece(id));
  content.counts.assign(content.tokens.size(), 0);
  content.model = serialized;
  return Vocabulary(std::move(content), "v.json").to_text(Json::object());
}

std::string imported(const std::string& bytes, std::optional<text::TokenType> type) {
  text::VocabularyImport rules;
  rules.type = type;
  return text::import_vocabulary(bytes, rules, "list").to_text(Json::object());
}

std::string file_of(const Input& input) {
  const std::string bytes(input.bytes);
  switch (input.mode & 7) {
    case 1:
      return repaired(bytes);
    case 2:
      return file_around(bytes);
    case 3:
      return imported(bytes, {});
    case 7:
      return imported(bytes, text::TokenType::kPiece);
    default:
      return bytes;
  }
}

void check(const Vocabulary& vocabulary) {
  const std::string json = vocabulary.to_text(Json::object());
  require(text::parse_vocabulary(json, "v.json").hash() == vocabulary.hash(),
          "what is written again reads the same");
  std::vector<text::TokenId> ids;
  const bool encoded = accepted([&] {
    const std::string file = "text";
    text::Unknowns unknowns(vocabulary, text::UnknownRule::kUnk);
    unknowns.set_place(&file, 1);
    const auto encoder = text::make_line_encoder(vocabulary);
    encoder->encode("the Cat, \xC3\xA9\xF0\x9F\x98\x80 <unk> <eos>\t\xE2\x96\x81 aaa", ids,
                    unknowns);
    encoder->encode_line_end(ids, unknowns);
  });
  // An error for text outside of the vocabulary leaves ids incomplete.
  if (!encoded) ids.clear();
  for (const text::TokenId id : ids) require(id < vocabulary.size(), "ids are in the vocabulary");
  for (text::TokenId id = 0; id < vocabulary.size(); ++id) {
    require(vocabulary.find(vocabulary.token(id)) == id, "tokens are found");
  }
  accepted([&] {
    text::Decoder decoder(vocabulary, {}, [](std::string_view) {});
    decoder.write(ids.data(), ids.size());
    decoder.finish(std::nullopt);
  });
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  const Input input = input_of(data, size);
  std::optional<ql::text::Vocabulary> vocabulary;
  const bool good =
      accepted([&] { vocabulary = ql::text::parse_vocabulary(file_of(input), "v.json"); });
  if (!good) return 0;
  ++taken_inputs;
  check(*vocabulary);
  return 0;
}
