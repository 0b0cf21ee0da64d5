// Chooses how to read the vocabulary of another program, and which of its tokens are <eos> and
// <unk>.

#include "text/vocabulary_import.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "text/imported_tokens.h"
#include "text/token_lists.h"
#include "text/tokenizer_json.h"

namespace ql::text {
namespace {

// Other programs have these names for <eos> and <unk>. The published Transformer-XL has <S> and
// <UNK>.
const std::vector<std::string> kEosNames = {"<eos>",         "</s>",  "</S>",           "<S>",
                                            "<|endoftext|>", "[EOS]", "<|end_of_text|>"};
const std::vector<std::string> kUnkNames = {"<unk>", "<UNK>", "[UNK]"};

// Holds the content of a file before <eos> and <unk> are chosen.
struct Imported {
  VocabularyContent content;
  std::vector<std::string> names;   // the tokens as the file writes them
  std::optional<TokenId> eos, unk;  // as the file declares them
  std::vector<bool> control;        // SentencePiece only: true for pieces that may be <eos>
  std::vector<std::string> notes;   // human-readable messages
};

// Describes the request for one of the two special tokens.
struct Asked {
  const char* option;  // "eos" or "unk"
  Presence presence;
  const std::string& name;
  const std::vector<std::string>& usual;
  std::optional<TokenId> known;  // declared by the file
};

std::optional<TokenId> named_token(const Asked& asked, const Imported& imported,
                                   const std::string& where) {
  const std::string option = fmt::format("--{}-token", asked.option);
  const auto found = std::find(imported.names.begin(), imported.names.end(), asked.name);
  if (found == imported.names.end()) {
    throw UsageError(option,
                     fmt::format("{} is not a token of {} (number of tokens: {})",
                                 in_quotes(asked.name), where, imported.names.size()),
                     "write the token as the file does");
  }
  const auto id = static_cast<TokenId>(found - imported.names.begin());
  if (!imported.control.empty() && !imported.control[id]) {
    throw UsageError(option,
                     fmt::format("{} is not a control piece of {}", in_quotes(asked.name), where),
                     "name a control piece, or leave the option out");
  }
  return id;
}

// Finds the token with one of the names in asked.usual, such as </s> for <eos>. Skips `other`,
// which was chosen as the other special token.
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
                     fmt::format("choose one with --{}-token", asked.option));
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
  throw UsageError(fmt::format("--{} always", asked.option),
                   fmt::format("{} has no {} with one of the usual names {}", where,
                               imported.control.empty() ? "token" : "control piece",
                               fmt::join(asked.usual, " ")),
                   fmt::format("give --{0}-token TOKEN, or leave out --{0} always", asked.option));
}

std::string in_place_of_line(std::uint64_t id) {
  return fmt::format(
      "if no token has the id of this line, write {} in it, because to remove the line moves all "
      "later ids",
      placeholder(id, {}));
}

// Adds the first word of the line, and its count if a number follows. If `counted`, a number must
// follow.
void add_word_line(std::string_view line, bool counted, std::uint64_t id,
                   VocabularyContent& content, const std::string& place) {
  const auto begin = std::find_if_not(line.begin(), line.end(), is_blank);
  const auto end = std::find_if(begin, line.end(), is_blank);
  const auto rest = std::find_if_not(end, line.end(), is_blank);
  // A blank, a tab and a number are a token of blanks and its count.
  const bool blank = begin - line.begin() > 1 && begin[-1] == '\t' && rest == line.end() &&
                     parse_integer(std::string(begin, end));
  if (begin == end || blank) {
    throw FormatError(
        place, "the line has no word",
        counted ? "remove the line"
                : in_place_of_line(id) + ", or import with --type piece if its blanks are a token");
  }
  content.tokens.emplace_back(begin, end);
  const auto rest_end = std::find_if(rest, line.end(), is_blank);
  const std::optional<std::int64_t> count = parse_integer(std::string(rest, rest_end));
  if (counted && !(count && *count >= 0)) {
    const std::string found(rest, rest_end);
    throw FormatError(
        place,
        fmt::format("expected a count after {}, found {}", in_quotes(content.tokens.back()),
                    found.empty() ? "nothing" : in_quotes(found)),
        "write one word and its count per line");
  }
  content.counts.push_back(std::max<std::int64_t>(0, count.value_or(0)));
}

// Returns kAscii if a word contains Unicode whitespace: a program that splits only at ASCII
// whitespace leaves other whitespace inside words.
Blanks blanks_of(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), has_unicode_blank) ? Blanks::kAscii
                                                                    : Blanks::kUnicode;
}

// A carriage return at the end of a line belongs to the line end. If a token ends with a carriage
// return, the list has it escaped, as \r.
void add_piece_line(std::string_view line, std::uint64_t id, VocabularyContent& content,
                    const std::string& place) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) {
    throw FormatError(place, "the line is empty",
                      "write \\n if the token is a line feed; " + in_place_of_line(id));
  }
  content.tokens.emplace_back(line);
}

// Makes the tokens of a vocabulary of this type from the names. For kPiece, the names are turned
// into the bytes that they spell: by `spelling`, or by evident_spelling() if `spelling` has no
// value.
void use_names(TokenType type, std::optional<Spelling> spelling, const std::string& where,
               Imported& list) {
  list.content.type = type;
  list.content.tokens = list.names;
  if (type != TokenType::kPiece) return;
  const Spelling used = spelling.value_or(evident_spelling(list.names));
  Speller speller(where);
  for (std::string& token : list.content.tokens) token = speller.spell(spelled_bytes(token, used));
}

// Puts `count` tokens before the tokens of the list.
void shift_ids(std::uint32_t count, bool fairseq, Imported& list) {
  const std::unordered_set<std::string> taken(list.names.begin(), list.names.end());
  std::vector<std::string> before;
  for (std::uint32_t id = 0; id < count; ++id) {
    before.push_back(fairseq ? kFairseqTokens[id] : placeholder(id, taken));
  }
  for (auto* tokens : {&list.names, &list.content.tokens}) {
    tokens->insert(tokens->begin(), before.begin(), before.end());
  }
  list.content.counts.insert(list.content.counts.begin(), count, 0);
  if (!fairseq) return;
  list.eos = TokenId{2};
  list.unk = TokenId{3};
}

// A name belongs to one id. If a line with #fairseq:overwrite has the name of an earlier one,
// fairseq encodes text as the later id, so this id gets the name and the earlier one a placeholder.
// kFairseqTokens keep their names, because fairseq itself writes their ids: 2 at each line end and
// 3 for unknown words.
void resolve_second_names(std::string_view text, std::uint32_t offset, Imported& list) {
  const std::unordered_set<std::string> taken(list.names.begin(), list.names.end());
  std::unordered_map<std::string, std::size_t> ids;
  for (std::size_t id = 0; id < offset; ++id) ids.emplace(list.names[id], id);
  std::size_t id = offset;
  for (LineSplitter lines(text); lines.next() && id < list.names.size(); ++id) {
    const bool overwrites = lines.line().find(kFairseqOverwrite) != std::string_view::npos;
    const auto [old, is_first] = ids.emplace(list.names[id], id);
    if (is_first || (!overwrites && old->second >= offset)) continue;
    const std::size_t nameless = old->second < offset ? id : std::exchange(old->second, id);
    list.names[nameless] = list.content.tokens[nameless] = placeholder(nameless, taken);
  }
}

// Throws FormatError for a word that comes twice. The first line of the list has the id `offset`.
void refuse_second_words(const std::vector<std::string>& words, bool counted, std::size_t offset,
                         const std::string& where) {
  std::unordered_map<std::string_view, std::size_t> lines;
  for (std::size_t id = offset; id < words.size(); ++id) {
    const std::size_t line = id - offset + 1;
    const auto [first, is_new] = lines.emplace(words[id], line);
    if (is_new) continue;
    throw FormatError(
        fmt::format("{}: line {}", where, line),
        fmt::format("{} is the word of line {}, too", in_quotes(words[id]), first->second),
        counted
            ? "write one line with the sum of the counts"
            : "import with --type piece if complete lines are the tokens; " + in_place_of_line(id));
  }
}

// Reads a list whose first token has the id `offset`. A blank line at its end is not an entry.
Imported read_list(std::string_view text, TokenType type, bool counted, std::uint64_t offset,
                   const std::string& where) {
  for (const std::string_view end : {"\n\n", "\n\r\n"}) {
    if (text.size() > end.size() && text.substr(text.size() - end.size()) == end) {
      text.remove_suffix(end.size() - 1);
    }
  }
  Imported list;
  list.content.type = type;
  std::uint64_t number = 0;
  for (LineSplitter lines(text); lines.next(); ++number) {
    const std::string place = fmt::format("{}: line {}", where, number + 1);
    if (type == TokenType::kWord) {
      add_word_line(lines.line(), counted, offset + number, list.content, place);
    } else {
      add_piece_line(lines.line(), offset + number, list.content, place);
    }
  }
  list.names = list.content.tokens;
  return list;
}

void refuse_invalid(std::string_view text, const std::string& where) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  const std::string_view before = text.substr(0, bad);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  throw FormatError(fmt::format("{}: line {}", where, line), "invalid UTF-8",
                    "convert the list with iconv, or write bytes as \\xNN and give --type piece");
}

void check_rules(const VocabularyImport& rules, TokenType type, const std::string& what,
                 const std::string& where) {
  if (rules.type && *rules.type != type) {
    throw UsageError(fmt::format("--type {}", to_text(*rules.type)),
                     fmt::format("{} is {}, of type {}", where, what, to_text(type)),
                     "leave the option out");
  }
  if (type == TokenType::kWord) return;
  if (rules.lowercase || rules.blanks) {
    throw UsageError(rules.lowercase ? "--lowercase" : "--blanks",
                     fmt::format("goes with words only, but {} has pieces", what),
                     "leave the option out");
  }
}

Imported read_plain_list(std::string_view text, const VocabularyImport& rules, TokenType type,
                         const std::string& where) {
  const auto own_tokens = static_cast<std::uint32_t>(kFairseqTokens.size());
  // The tokens that fairseq leaves out of its lists have no counts.
  const FairseqList kind = rules.counted || rules.id_offset.value_or(own_tokens) != own_tokens
                               ? FairseqList::kNo
                               : fairseq_list(text, where);
  if (kind == FairseqList::kWithSpecials && !rules.id_offset) {
    throw UsageError(
        "--id-offset",
        fmt::format("{} may be a list of fairseq, but has some of {}, which fairseq leaves out",
                    where, fmt::join(kFairseqTokens, " ")),
        "give --id-offset 4 if an old version of fairseq made the ids with this list, or "
        "--id-offset 0 if the ids are the numbers of its lines, from 0");
  }
  const bool fairseq = kind != FairseqList::kNo;
  const std::uint32_t offset = rules.id_offset.value_or(fairseq ? own_tokens : 0);
  Imported list = read_list(text, fairseq ? TokenType::kWord : type, rules.counted, offset, where);
  if (rules.type != TokenType::kPiece) {
    const auto& counts = list.content.counts;
    refuse_joined(list.names, counts != std::vector<std::int64_t>(counts.size()), where);
  }
  shift_ids(offset, fairseq, list);
  if (fairseq) {
    resolve_second_names(text, offset, list);
    list.notes.push_back(fmt::format(
        "this is a fairseq list: its ids start at 4, after {} (to start at 0: --id-offset 0)",
        fmt::join(kFairseqTokens, " ")));
  }
  if (type == TokenType::kWord && !rules.type && evident_spelling(list.names) != Spelling::kPlain) {
    list.notes.emplace_back(
        "the tokens have marks for blanks, so they are imported as pieces, which cannot encode "
        "text (to import words: --type word)");
    check_rules(rules, TokenType::kPiece, "this list", where);
    use_names(TokenType::kPiece, std::nullopt, where, list);
  } else if (list.content.type != type) {
    use_names(type, std::nullopt, where, list);
  }
  if (!fairseq && list.content.type == TokenType::kWord) {
    refuse_second_words(list.names, rules.counted, offset, where);
  }
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
  imported.eos = model.eos();
  imported.unk = model.unk();
  const auto joins_lines = [](const std::string& piece) {
    return piece.size() > 1 && piece.find('\n') != std::string::npos;
  };
  if (std::any_of(imported.names.begin(), imported.names.end(), joins_lines)) {
    imported.notes.emplace_back(
        "pieces of several characters with a line feed among them are never used, because text is "
        "encoded line by line; where the SentencePiece library uses them, its ids differ");
  }
  return imported;
}

// Returns true if the content begins with pieces, as a SentencePiece model does. A piece is a byte
// 0x0A, a length, and a message that begins with 0x0A.
bool looks_like_model(std::string_view content) {
  if (content.size() < 3 || content[0] != '\x0A' || content[2] != '\x0A') return false;
  const std::size_t next = 2 + static_cast<unsigned char>(content[1]);
  return next < content.size() && content[next] == '\x0A';
}

void check_list_type(TokenType type, const std::string& where) {
  if (type == TokenType::kWord || type == TokenType::kPiece) return;
  throw UsageError(fmt::format("--type {}", to_text(type)),
                   fmt::format("{} is a list, which has words or pieces", where),
                   "give --type word or --type piece");
}

void refuse_offset(const VocabularyImport& rules, const std::string& what,
                   const std::string& where) {
  if (!rules.id_offset) return;
  throw UsageError("--id-offset", fmt::format("{} is {}, which has its own ids", where, what),
                   "leave the option out");
}

// Imports a list whose file determines the ids.
Imported read_with_ids(const TokenList& list, const VocabularyImport& rules,
                       const std::string& where) {
  TokenType type = rules.type.value_or(list.type);
  if (!rules.type && evident_spelling(list.names) != Spelling::kPlain) type = TokenType::kPiece;
  // check_list_type() advises --type word or --type piece. If the list can only have pieces,
  // check_rules() refuses other types, and its message says that the type is piece.
  if (!list.pieces_only) check_list_type(type, where);
  refuse_offset(rules, list.kind, where);
  check_rules(rules, list.pieces_only ? TokenType::kPiece : type, list.kind, where);
  Imported imported;
  imported.names = list.names;
  use_names(type, list.spelling, where, imported);
  if (rules.type != TokenType::kPiece) refuse_joined(imported.names, false, where);
  if (!list.note.empty()) imported.notes.push_back(list.note);
  return imported;
}

void add_gap_note(Imported& imported) {
  std::size_t gaps = 0;
  for (std::size_t id = 0; id < imported.names.size(); ++id) {
    if (is_placeholder(imported.names[id], id)) ++gaps;
  }
  if (gaps == 0) return;
  imported.notes.push_back(
      fmt::format("number of ids without a token: {}; each gets a placeholder named <missing:ID>",
                  with_thousands(gaps)));
}

// Call this when the special tokens are known.
void add_case_note(Imported& imported) {
  const VocabularyContent& vocabulary = imported.content;
  if (vocabulary.type != TokenType::kWord && vocabulary.type != TokenType::kChar) return;
  std::size_t upper = 0;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const bool is_special = id == vocabulary.eos || id == vocabulary.unk;
    const std::string& token = vocabulary.tokens[id];
    if (!is_special && lowercase(token) != token) ++upper;
  }
  if (upper == 0) return;
  imported.notes.push_back(
      fmt::format("number of tokens with upper-case letters, which no text has after --lowercase: "
                  "{}",
                  with_thousands(upper)));
}

Imported read_import(const std::string& content, const VocabularyImport& rules,
                     const std::string& where) {
  if (looks_like_model(content)) {
    refuse_offset(rules, "a SentencePiece model", where);
    check_rules(rules, TokenType::kSentencePiece, "a SentencePiece model", where);
    if (rules.unk == Presence::kNever || !rules.unk_token.empty()) {
      throw UsageError(rules.unk_token.empty() ? "--unk never" : "--unk-token",
                       "a SentencePiece model defines its own <unk>", "leave the option out");
    }
    return read_model(content, where);
  }
  // Some editors begin a text with a byte order mark.
  std::string_view text = content;
  if (begins_with_mark(text)) text.remove_prefix(kByteOrderMark.size());
  if (begins_json(text)) {
    const Json json = parse_json(text, where);
    if (!is_tokenizer_json(json)) return read_with_ids(read_json_tokens(json, where), rules, where);
    refuse_offset(rules, "a tokenizer.json", where);
    check_rules(rules, TokenType::kPiece, "a tokenizer.json", where);
    Imported imported;
    imported.content = read_tokenizer_json(json, where, imported.names, imported.unk);
    return imported;
  }
  refuse_invalid(text, where);
  if (const auto list = read_token_list(text, rules.type, rules.counted, where)) {
    return read_with_ids(*list, rules, where);
  }
  const TokenType type = rules.type.value_or(TokenType::kWord);
  check_list_type(type, where);
  check_rules(rules, type, "a list with --type piece", where);
  return read_plain_list(text, rules, type, where);
}

}  // namespace

bool begins_json(std::string_view text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_blank);
  if (begin == text.end() || (*begin != '{' && *begin != '[')) return false;
  const auto next = std::find_if_not(begin + 1, text.end(), is_blank);
  return text.end() - next > 1 && *next == '"' && next[1] != '\n' && next[1] != '\r';
}

Vocabulary import_vocabulary(const std::string& content, const VocabularyImport& rules,
                             const std::string& where, std::vector<std::string>* notes) {
  Imported imported = read_import(content, rules, where);
  add_gap_note(imported);
  VocabularyContent& vocabulary = imported.content;
  // Only plain lists of words have counts; all other tokens get 0.
  vocabulary.counts.resize(vocabulary.tokens.size());
  vocabulary.lowercase = rules.lowercase;
  if (vocabulary.type == TokenType::kWord) {
    vocabulary.blanks = rules.blanks ? *rules.blanks : blanks_of(vocabulary.tokens);
  }
  vocabulary.eos = find_special({"eos", rules.eos, rules.eos_token, kEosNames, imported.eos},
                                imported, std::nullopt, where);
  vocabulary.unk = vocabulary.type == TokenType::kSentencePiece
                       ? imported.unk
                       : find_special({"unk", rules.unk, rules.unk_token, kUnkNames, imported.unk},
                                      imported, vocabulary.eos, where);
  if (rules.lowercase) add_case_note(imported);
  if (notes != nullptr) notes->insert(notes->end(), imported.notes.begin(), imported.notes.end());
  return {std::move(vocabulary), where};
}

}  // namespace ql::text
