#include "text/vocabulary_import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/number.h"
#include "text/lines_internal.h"
#include "text/tokenizer_json_internal.h"
#include "text/words.h"

namespace ql::text {
namespace {

// Names that other programs have for them. The public Transformer-XL has <S> and <UNK>.
const std::vector<std::string> kEosNames = {"<eos>",         "</s>",  "</S>",           "<S>",
                                            "<|endoftext|>", "[EOS]", "<|end_of_text|>"};
const std::vector<std::string> kUnkNames = {"<unk>", "<UNK>", "[UNK]"};

// Finds <eos> or <unk> among the tokens. `known`: what the file says itself.
std::optional<TokenId> find_special(const std::vector<std::string>& tokens, const char* option,
                                    Presence presence, const std::string& name,
                                    const std::vector<std::string>& usual,
                                    std::optional<TokenId> known, const std::string& where) {
  if (presence == Presence::kNever) {
    if (name.empty()) return std::nullopt;
    throw UsageError(fmt::format("--{}-token", option),
                     fmt::format("does not go with --{} never", option), "leave one of them out");
  }
  if (name.empty() && known) return known;
  std::vector<TokenId> found;
  for (TokenId id = 0; id < tokens.size(); ++id) {
    const bool named = name.empty()
                           ? std::find(usual.begin(), usual.end(), tokens[id]) != usual.end()
                           : tokens[id] == name;
    if (named) found.push_back(id);
  }
  if (found.size() > 1 && name.empty()) {
    throw UsageError("",
                     fmt::format("{}: both {} and {} may be the <{}>", where, tokens[found[0]],
                                 tokens[found[1]], option),
                     fmt::format("say which, with --{}-token", option));
  }
  if (!found.empty()) return found.front();
  if (!name.empty()) {
    throw UsageError(
        fmt::format("--{}-token", option),
        fmt::format("'{}' is none of the {} tokens of {}", name, tokens.size(), where));
  }
  if (presence == Presence::kAuto) return std::nullopt;
  throw UsageError(fmt::format("--{} always", option),
                   fmt::format("{} has none of the usual names {}", where, fmt::join(usual, " ")),
                   fmt::format("say with --{}-token which token it is", option));
}

// A word, and its count where the rest of the line is one.
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

VocabularyContent read_list(std::string_view text, TokenType type, const std::string& where) {
  VocabularyContent content;
  content.type = type;
  std::int64_t number = 0;
  for (LineSplitter lines(text); lines.next();) {
    ++number;
    const std::string place = fmt::format("{}: line {}", where, number);
    if (type == TokenType::kWord) {
      add_word_line(lines.line(), content, place);
      continue;
    }
    if (lines.line().empty()) {
      throw FormatError(place, "a token without text", "write a line feed as \\n");
    }
    content.tokens.emplace_back(lines.line());
  }
  content.counts.resize(content.tokens.size());
  return content;
}

VocabularyContent read_model(const std::string& serialized, const std::string& where,
                             std::optional<TokenId>& eos, std::optional<TokenId>& unk) {
  const SentencePieceModel model(serialized, where);
  VocabularyContent content;
  content.type = TokenType::kSentencePiece;
  content.model = serialized;
  for (std::uint32_t id = 0; id < model.size(); ++id) content.tokens.push_back(model.piece(id));
  content.counts.resize(content.tokens.size());
  eos = model.eos();
  unk = model.unk();
  return content;
}

// The library writes the pieces first, as messages with a text.
bool looks_like_model(std::string_view content) {
  return content.size() > 3 && content[0] == '\x0A' && content[2] == '\x0A';
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

}  // namespace

Vocabulary import_vocabulary(const std::string& content, const VocabularyImport& rules,
                             const std::string& where) {
  std::optional<TokenId> eos, unk;
  std::vector<std::string> names;  // of the tokens in the file
  VocabularyContent vocabulary;
  if (looks_like_model(content)) {
    check_rules(rules, TokenType::kSentencePiece, "a SentencePiece model", where);
    vocabulary = read_model(content, where, eos, unk);
  } else if (is_tokenizer_json(content)) {
    check_rules(rules, TokenType::kPiece, "a tokenizer.json", where);
    vocabulary = read_tokenizer_json(content, where, names, unk);
  } else {
    const TokenType type = rules.type.value_or(TokenType::kWord);
    if (type != TokenType::kWord && type != TokenType::kPiece) {
      throw UsageError(fmt::format("--type {}", to_text(type)),
                       fmt::format("{} is a list, of words or pieces", where),
                       "give --type word or --type piece");
    }
    check_rules(rules, type, "a list of pieces", where);
    vocabulary = read_list(content, type, where);
  }
  vocabulary.lowercase = rules.lowercase;
  if (names.empty()) names = vocabulary.tokens;
  vocabulary.eos = find_special(names, "eos", rules.eos, rules.eos_token, kEosNames, eos, where);
  // The library knows the unknown piece of its models itself.
  vocabulary.unk =
      vocabulary.type == TokenType::kSentencePiece
          ? unk
          : find_special(names, "unk", rules.unk, rules.unk_token, kUnkNames, unk, where);
  return {std::move(vocabulary), where};
}

}  // namespace ql::text
