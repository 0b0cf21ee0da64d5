// Opens packed folders and streams of tokens, and reads the strings of tokens from a vocabulary.

#include "eval/data_set.h"

#include "base/log.h"
#include "shard/same_vocabulary.h"

namespace ql::eval {

TokenSource source_of(shard::MultiReader& reader) {
  return {reader.name(), reader.tokens(),
          [&reader](std::int64_t begin, std::int64_t count, std::int64_t* out) {
            reader.read(begin, count, out);
          },
          [&reader]() -> decltype(auto) { return reader.document_starts(); }};
}

namespace {

// Keeps the tokens of a stream in memory.
struct KeptStream : shard::TokenSink {
  void begin_document() override { starts.push_back(static_cast<std::int64_t>(ids.size())); }
  void write(const shard::TokenId* more, std::size_t count) override {
    ids.insert(ids.end(), more, more + count);
  }
  std::vector<shard::TokenId> ids;
  std::vector<std::int64_t> starts;
};

DataSet read_stream(const std::string& path) {
  InputFile input(path);
  shard::TokenStreamReader stream(input);
  const auto kept = std::make_shared<KeptStream>();
  copy_stream(stream, *kept, [](std::int64_t) {});
  TokenSource source{
      input.name(), stream.tokens(),
      [kept](std::int64_t begin, std::int64_t count, std::int64_t* out) {
        if (begin < 0 || count < 0 || begin > static_cast<std::int64_t>(kept->ids.size()) - count) {
          throw std::out_of_range("tokens outside the stream");
        }
        std::copy_n(kept->ids.begin() + begin, count, out);
      },
      [kept]() -> decltype(auto) { return (kept->starts); }};
  DataSet data{path, stream.header().vocabulary, stream.counts(), std::move(source)};
  warn_of_unknown_tokens(data, [&] { return stream.header().vocabulary_text; });
  return data;
}

// Returns the share of <unk> in the text that the vocabulary was made from, or nothing if its file
// does not have the counts.
std::optional<double> counted_share_of_unknown(const std::string& vocabulary_text,
                                               shard::TokenId unk) {
  if (vocabulary_text.empty()) return std::nullopt;
  const Json vocabulary = parse_json(vocabulary_text, "the vocabulary");
  if (!vocabulary.is_object()) return std::nullopt;
  const Json counts = vocabulary.value("counts", Json());
  if (!counts.is_array() || counts.size() <= unk) return std::nullopt;
  double all = 0;
  for (const Json& count : counts) {
    if (!count.is_number()) return std::nullopt;
    all += count.get<double>();
  }
  return all > 0 ? std::optional(counts[unk].get<double>() / all) : std::nullopt;
}

}  // namespace

DataSet open_data(const std::string& path) {
  if (shard::names_stream(path)) return read_stream(path);
  const auto folder = std::make_shared<shard::MultiReader>(std::vector<std::string>{path});
  DataSet data{path,  folder->vocabulary(), folder->counts(), source_of(*folder), folder->hash(),
               folder};
  warn_of_unknown_tokens(data, [&] { return folder->vocabulary_text(); });
  return data;
}

bool has_many_unknown(std::int64_t unknown, std::int64_t tokens, double usual_share) {
  const double share = static_cast<double>(unknown) / static_cast<double>(tokens);
  return unknown >= 50 && share >= 0.05 && share > 3 * usual_share;
}

void warn_of_unknown_tokens(const DataSet& data,
                            const std::function<std::string()>& vocabulary_text) {
  if (!data.counts || !data.vocabulary.unk) return;
  const std::int64_t unknown = data.counts->unknown;
  const std::int64_t tokens = data.source.tokens;
  // A vocabulary is parsed only where its share can matter.
  if (!has_many_unknown(unknown, tokens, 0)) return;
  const auto usual = counted_share_of_unknown(vocabulary_text(), *data.vocabulary.unk);
  if (!usual || !has_many_unknown(unknown, tokens, *usual)) return;
  log_warning(
      "{}: {:.1f} % of the tokens are <unk>, but {:.1f} % in the text that the vocabulary was made "
      "from; prepare this text as that one was prepared (such as with tokenize; see FILES "
      "in transformer-ql(7))",
      data.source.name, 100.0 * static_cast<double>(unknown) / static_cast<double>(tokens),
      100.0 * *usual);
}

void check_vocabulary(const std::string& trained_on, const shard::VocabularyInfo& vocabulary,
                      const DataSet& data) {
  shard::require_same_vocabulary(
      {data.source.name, data.vocabulary}, {trained_on, vocabulary},
      "encode the text with the vocabulary of the training data (qltok encode --vocab)");
}

std::string shown_piece(const std::string& piece) {
  const std::string bytes = unescaped(piece).value_or(piece);
  std::string text;
  for (std::size_t i = 0, length = 0; i < bytes.size(); i += length) {
    const CodePoint point = code_point_at(bytes, i);
    length = point.length;
    if (point.valid) text += bytes.substr(i, length);
    for (std::size_t k = i; !point.valid && k < i + length; ++k) {
      text += byte_token(static_cast<unsigned char>(bytes[k]));
    }
  }
  return text;
}

// Returns the bytes of a token. ql-vocabulary(5) describes how each type of vocabulary writes its
// tokens.
static std::string bytes_of(const std::string& token, const std::string& type) {
  if (type == "piece") return unescaped(token).value_or(token);
  if (type != "byte" && type != "sentencepiece") return token;
  if (const auto byte = parse_byte_token(token)) return {static_cast<char>(*byte)};
  return replaced(token, "\xE2\x96\x81", " ");  // U+2581
}

template <typename TextOf>
static TokenTexts read_tokens(const std::string& vocabulary_text, const TextOf& text_of) {
  TokenTexts texts;
  if (vocabulary_text.empty()) return texts;
  const std::string where = "the vocabulary";
  const Json json = parse_json(vocabulary_text, where);
  const JsonObject vocabulary(json, where);
  const Json& tokens = vocabulary.at("tokens");
  const std::string type = vocabulary.text("type");
  if (!tokens.is_array()) {
    throw FormatError(where, fmt::format("tokens: expected an array, found {}", tokens.type_name()),
                      "make the data again with a vocabulary that qltok made");
  }
  texts.reserve(tokens.size());
  for (const Json& token : tokens) {
    if (!token.is_string()) {
      throw FormatError(fmt::format("{}: tokens[{}]", where, texts.size()),
                        fmt::format("expected a string, found {}", token.type_name()),
                        "make the data again with a vocabulary that qltok made");
    }
    texts.push_back(text_of(token.get<std::string>(), type));
  }
  return texts;
}

TokenTexts read_token_texts(const std::string& vocabulary_text) {
  return read_tokens(vocabulary_text, [](const std::string& token, const std::string& type) {
    return type == "piece" ? shown_piece(token) : token;
  });
}

TokenTexts read_token_bytes(const std::string& vocabulary_text) {
  return read_tokens(vocabulary_text, bytes_of);
}

}  // namespace ql::eval
