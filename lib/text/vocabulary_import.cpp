#include "text/vocabulary_import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/number.h"
#include "base/utf8.h"
#include "text/lines_internal.h"
#include "text/tokenizer_json_internal.h"
#include "text/words.h"

namespace ql::text {
namespace {

// Names that other programs have for them. The public Transformer-XL has <S> and <UNK>.
const std::vector<std::string> kEosNames = {"<eos>",         "</s>",  "</S>",           "<S>",
                                            "<|endoftext|>", "[EOS]", "<|end_of_text|>"};
const std::vector<std::string> kUnkNames = {"<unk>", "<UNK>", "[UNK]"};

// Holds what the file says before <eos> and <unk> are chosen.
struct Imported {
  VocabularyContent content;
  std::vector<std::string> names;   // of the tokens as the file writes them
  std::optional<TokenId> eos, unk;  // as the file says itself
  std::vector<bool> control;        // of a SentencePiece model: only such a token can be <eos>
};

// Says what is asked for one of the two.
struct Asked {
  const char* option;  // "eos"
  Presence presence;
  const std::string& name;
  const std::vector<std::string>& usual;
  std::optional<TokenId> known;  // by the file
};

std::optional<TokenId> named_token(const Asked& asked, const Imported& imported,
                                   const std::string& where) {
  const std::string option = fmt::format("--{}-token", asked.option);
  const auto found = std::find(imported.names.begin(), imported.names.end(), asked.name);
  if (found == imported.names.end()) {
    throw UsageError(option, fmt::format("'{}' is none of the {} tokens of {}", asked.name,
                                         imported.names.size(), where));
  }
  const auto id = static_cast<TokenId>(found - imported.names.begin());
  if (!imported.control.empty() && !imported.control[id]) {
    throw UsageError(option,
                     fmt::format("'{}' is text to {}, not a control piece", asked.name, where),
                     "leave the option out");
  }
  return id;
}

// Finds the token with a usual name. `other` is taken.
std::optional<TokenId> usual_token(const Asked& asked, const Imported& imported,
                                   std::optional<TokenId> other, const std::string& where) {
  std::vector<TokenId> found;
  for (TokenId id = 0; id < imported.names.size(); ++id) {
    const bool possible = (imported.control.empty() || imported.control[id]) && id != other;
    const auto& usual = asked.usual;
    if (possible && std::find(usual.begin(), usual.end(), imported.names[id]) != usual.end()) {
      found.push_back(id);
    }
  }
  if (found.size() > 1) {
    throw UsageError("",
                     fmt::format("{}: both {} and {} may be the <{}>", where,
                                 imported.names[found[0]], imported.names[found[1]], asked.option),
                     fmt::format("say which, with --{}-token", asked.option));
  }
  if (found.empty()) return std::nullopt;
  return found.front();
}

std::optional<TokenId> find_special(const Asked& asked, const Imported& imported,
                                    std::optional<TokenId> other, const std::string& where) {
  if (asked.presence == Presence::kNever) {
    if (asked.name.empty()) return std::nullopt;
    throw UsageError(fmt::format("--{}-token", asked.option),
                     fmt::format("does not go with --{} never", asked.option),
                     "leave one of them out");
  }
  if (!asked.name.empty()) return named_token(asked, imported, where);
  if (asked.known && asked.known != other) return asked.known;
  const std::optional<TokenId> token = usual_token(asked, imported, other, where);
  if (token || asked.presence == Presence::kAuto) return token;
  throw UsageError(
      fmt::format("--{} always", asked.option),
      fmt::format("{} has none of the usual names {}", where, fmt::join(asked.usual, " ")),
      fmt::format("say with --{}-token which token it is", asked.option));
}

// Adds a word, and its count where a number follows.
void add_word_line(std::string_view line, VocabularyContent& content, const std::string& place) {
  const auto begin = std::find_if_not(line.begin(), line.end(), is_blank);
  const auto end = std::find_if(begin, line.end(), is_blank);
  if (begin == end) {
    throw FormatError(place, "no word", "leave the line out, or import it with --type piece");
  }
  content.tokens.emplace_back(begin, end);
  const auto rest = std::find_if_not(end, line.end(), is_blank);
  const auto rest_end = std::find_if(rest, line.end(), is_blank);
  const std::optional<std::int64_t> count = parse_integer(std::string(rest, rest_end));
  content.counts.push_back(std::max<std::int64_t>(0, count.value_or(0)));
}

// A carriage return at the end of a line belongs to the line end. In a piece it is written \r.
void add_piece_line(std::string_view line, VocabularyContent& content, const std::string& place) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) throw FormatError(place, "a token without text", "write a line feed as \\n");
  content.tokens.emplace_back(line);
}

Imported read_list(std::string_view text, TokenType type, const std::string& where) {
  Imported list;
  list.content.type = type;
  std::int64_t number = 0;
  for (LineSplitter lines(text); lines.next();) {
    const std::string place = fmt::format("{}: line {}", where, ++number);
    if (find_invalid_utf8(lines.line()) != std::string_view::npos) {
      throw FormatError(place, "invalid UTF-8",
                        "convert the list with iconv, or write bytes as \\xNN with --type piece");
    }
    if (type == TokenType::kWord) {
      add_word_line(lines.line(), list.content, place);
    } else {
      add_piece_line(lines.line(), list.content, place);
    }
  }
  list.content.counts.resize(list.content.tokens.size());
  list.names = list.content.tokens;
  return list;
}

Imported read_model(const std::string& serialized, const std::string& where) {
  const SentencePieceModel model(serialized, where);
  Imported imported;
  imported.content.type = TokenType::kSentencePiece;
  imported.content.model = serialized;
  for (std::uint32_t id = 0; id < model.size(); ++id) {
    imported.names.push_back(model.piece(id));
    imported.control.push_back(model.is_control(id));
  }
  imported.content.tokens = imported.names;
  imported.content.counts.resize(model.size());
  imported.eos = model.eos();
  imported.unk = model.unk();
  return imported;
}

// The library writes the pieces first: messages with a length and a text, of which many follow.
bool looks_like_model(std::string_view content) {
  if (content.size() < 3 || content[0] != '\x0A' || content[2] != '\x0A') return false;
  const std::size_t next = 2 + static_cast<unsigned char>(content[1]);
  return next < content.size() && content[next] == '\x0A';
}

void check_rules(const VocabularyImport& rules, TokenType type, const char* what,
                 const std::string& where) {
  if (rules.type && *rules.type != type) {
    throw UsageError(fmt::format("--type {}", to_text(*rules.type)),
                     fmt::format("{} is {}, of type {}", where, what, to_text(type)),
                     "leave the option out");
  }
  if (rules.lowercase && type != TokenType::kWord) {
    throw UsageError("--lowercase", fmt::format("does not go with {}", what),
                     "leave the option out");
  }
}

Imported read_import(const std::string& content, const VocabularyImport& rules,
                     const std::string& where) {
  if (looks_like_model(content)) {
    check_rules(rules, TokenType::kSentencePiece, "a SentencePiece model", where);
    if (rules.unk == Presence::kNever || !rules.unk_token.empty()) {
      throw UsageError(rules.unk_token.empty() ? "--unk never" : "--unk-token",
                       "a SentencePiece model says itself which piece is <unk>",
                       "leave the option out");
    }
    return read_model(content, where);
  }
  // Some editors begin a text with a byte order mark.
  std::string_view text = content;
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  if (is_tokenizer_json(text)) {
    check_rules(rules, TokenType::kPiece, "a tokenizer.json", where);
    Imported imported;
    imported.content = read_tokenizer_json(text, where, imported.names, imported.unk);
    return imported;
  }
  const TokenType type = rules.type.value_or(TokenType::kWord);
  if (type != TokenType::kWord && type != TokenType::kPiece) {
    throw UsageError(fmt::format("--type {}", to_text(type)),
                     fmt::format("{} is a list, of words or pieces", where),
                     "give --type word or --type piece");
  }
  check_rules(rules, type, "a list of pieces", where);
  return read_list(text, type, where);
}

}  // namespace

Vocabulary import_vocabulary(const std::string& content, const VocabularyImport& rules,
                             const std::string& where) {
  Imported imported = read_import(content, rules, where);
  VocabularyContent& vocabulary = imported.content;
  vocabulary.lowercase = rules.lowercase;
  vocabulary.eos = find_special({"eos", rules.eos, rules.eos_token, kEosNames, imported.eos},
                                imported, std::nullopt, where);
  vocabulary.unk = vocabulary.type == TokenType::kSentencePiece
                       ? imported.unk
                       : find_special({"unk", rules.unk, rules.unk_token, kUnkNames, imported.unk},
                                      imported, vocabulary.eos, where);
  return {std::move(vocabulary), where};
}

}  // namespace ql::text
