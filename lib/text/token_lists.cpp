// Recognizes the kinds of token lists by their lines, and implements one reader for each kind.

#include "text/token_lists.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "base/bytes.h"
#include "text/text_reader.h"

namespace ql::text {

namespace {

// The first kHeadLines lines of a list usually show its kind. Then every line of the list must have
// the form of this kind.
constexpr std::size_t kHeadLines = 1024;
constexpr const char* kDamagedRemedy = "is the list damaged? copy it again";

using Lines = std::vector<std::string_view>;
using Fields = std::vector<std::string_view>;

Lines lines_of(std::string_view text) {
  Lines lines;
  for (LineSplitter splitter(text); splitter.next();) {
    std::string_view line = splitter.line();
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

Fields fields_of(std::string_view line) {
  Fields fields;
  for (std::size_t begin = 0, end = 0; end < line.size(); begin = end + 1) {
    for (end = begin; end < line.size() && !is_blank(line[end]); ++end) {
    }
    if (end > begin) fields.push_back(line.substr(begin, end - begin));
  }
  return fields;
}

// Reads a number. Returns nothing unless all of the text is the number.
template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Accepts digits only: this is how programs write ids.
std::optional<std::uint64_t> id_of(std::string_view text) { return number_of<std::uint64_t>(text); }

std::optional<double> real_of(std::string_view text) { return number_of<double>(text); }

// Holds a line of a list whose tokens have ids.
struct Entry {
  std::string token;
  std::uint64_t id = 0;
};

using Reader = std::function<std::optional<Entry>(std::string_view line)>;

// Returns true if `holds` is true for at least nine of ten lines at the head of a list: a few
// damaged lines must not change the kind of the list.
template <typename Holds>
bool most(const Lines& lines, const Holds& holds) {
  const std::size_t head = std::min(lines.size(), kHeadLines);
  const auto end = lines.begin() + static_cast<std::ptrdiff_t>(head);
  return static_cast<std::size_t>(std::count_if(lines.begin(), end, holds)) * 10 >= head * 9;
}

template <typename Holds>
bool all(const Lines& lines, const Holds& holds) {
  return std::all_of(lines.begin(), lines.end(), holds);
}

// Reads "aGVsbG8= 5": the bytes of a token in base64, and its id.
std::optional<Entry> tiktoken_entry(std::string_view line) {
  const Fields fields = fields_of(line);
  if (fields.size() != 2) return std::nullopt;
  const auto bytes = base64_decode(fields[0]);
  const auto id = id_of(fields[1]);
  if (!bytes || bytes->empty() || !id) return std::nullopt;
  return Entry{*bytes, *id};
}

// Returns true for a tiktoken list, which has tokens in base64 and ids. A list of words and numbers
// may have the same form, because words of four letters are valid base64. So the ids must be
// distinct, and a token must have base64's padding "=", as every single byte has.
bool is_tiktoken(const Lines& lines) {
  if (!most(lines, tiktoken_entry)) return false;
  std::unordered_set<std::uint64_t> ids;
  bool padded = false;
  for (std::size_t i = 0; i < std::min(lines.size(), kHeadLines); ++i) {
    const auto entry = tiktoken_entry(lines[i]);
    if (!entry) continue;
    padded = padded || fields_of(lines[i])[0].back() == '=';
    if (!ids.insert(entry->id).second) return false;
  }
  return padded;
}

// Reads "0<tab>the": an id, and the rest of the line, which may be a blank. A number alone is not
// an entry.
std::optional<Entry> id_first_entry(std::string_view line) {
  const Fields fields = fields_of(line);
  const auto id = fields.empty() ? std::nullopt : id_of(fields[0]);
  if (!id) return std::nullopt;
  const auto* const end = fields[0].data() + fields[0].size();
  if (end == line.data() + line.size()) return std::nullopt;
  return Entry{std::string(end + 1, line.data() + line.size()), *id};
}

// Reads "the 0": a token, and its id. All that comes before a tab is the token, also blanks. A line
// of several columns that begins with a number is not an entry, because that number may be the id.
std::optional<Entry> id_last_entry(std::string_view line) {
  const Fields fields = fields_of(line);
  const auto id = fields.empty() ? std::nullopt : id_of(fields.back());
  if (!id || (fields.size() > 2 && id_of(fields[0]))) return std::nullopt;
  const auto before = static_cast<std::size_t>(fields.back().data() - line.data());
  if (before > 1 && line[before - 1] == '\t') {
    return Entry{std::string(line.substr(0, before - 1)), *id};
  }
  return fields.size() == 2 ? std::optional(Entry{std::string(fields[0]), *id}) : std::nullopt;
}

// Removes the blanks around a word.
void trim(std::string& word) {
  const auto begin = std::find_if_not(word.begin(), word.end(), is_blank);
  const auto end = std::find_if_not(word.rbegin(), std::make_reverse_iterator(begin), is_blank);
  if (begin != word.end()) word = std::string(begin, end.base());
}

// Returns true for at least three lines with ids that ascend by one from 0 or 1, like line numbers
// and unlike counts.
bool numbers_lines(const Lines& lines, const Reader& reader) {
  constexpr std::size_t kFewest = 3;
  if (lines.size() < kFewest) return false;
  const auto first = reader(lines[0]);
  if (!first || first->id > 1) return false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto entry = reader(lines[i]);
    if (!entry || entry->id != first->id + i) return false;
  }
  return true;
}

// Returns true for lines with numbers after the tokens that look more like ids in another order or
// with gaps than like counts: at least three, all different, which ascend, or which are those from
// 0 or 1 on in an order that does not descend.
bool may_be_ids(const Lines& lines) {
  constexpr std::size_t kFewest = 3;
  if (lines.size() < kFewest) return false;
  std::vector<std::uint64_t> ids;
  ids.reserve(lines.size());
  for (const std::string_view line : lines) ids.push_back(id_last_entry(line)->id);
  const auto strictly = [&ids](const auto& order) {
    return std::adjacent_find(ids.begin(), ids.end(), [&](std::uint64_t a, std::uint64_t b) {
             return !order(a, b);
           }) == ids.end();
  };
  if (strictly(std::less<>())) return true;
  if (strictly(std::greater<>())) return false;
  std::sort(ids.begin(), ids.end());
  return ids.front() <= 1 && ids.back() - ids.front() + 1 == ids.size() && strictly(std::less<>());
}

TokenList read_entries(const Lines& lines, const std::string& kind, const Reader& reader,
                       const std::string& where) {
  TokensById tokens(lines.size(), where);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto entry = reader(lines[i]);
    if (!entry || entry->token.empty()) {
      throw FormatError(fmt::format("{}: line {}", where, i + 1),
                        fmt::format("expected a token and its id, as in {}", kind), kDamagedRemedy);
    }
    tokens.add(entry->id, entry->token);
  }
  TokenList list;
  list.kind = kind;
  list.names = tokens.names();
  return list;
}

// Returns true if the line has a token, a tab and a score. The score is a log probability or, in a
// BPE model, a negated rank.
bool is_scored(std::string_view line) {
  const std::size_t tab = line.rfind('\t');
  return tab != std::string_view::npos && tab > 0 && real_of(line.substr(tab + 1));
}

// Returns true for a SentencePiece list of pieces and scores. A list of tokens and counts has the
// same form. So the list must contain a score that is not a count, and also U+2581, a byte piece or
// <unk>.
bool is_sentencepiece_list(const Lines& lines) {
  if (!most(lines, is_scored)) return false;
  bool pieces = false, scores = false;
  for (std::size_t i = 0; i < std::min(lines.size(), kHeadLines); ++i) {
    const std::string_view line = lines[i];
    const std::size_t tab = line.rfind('\t');
    if (tab == std::string_view::npos) continue;
    const std::string_view piece = line.substr(0, tab), score = line.substr(tab + 1);
    pieces = pieces || line.find(kPieceBlank) != std::string_view::npos || piece == "<unk>" ||
             byte_fallback(piece);
    scores = scores || score.find_first_not_of("0123456789") != std::string_view::npos;
  }
  return pieces && scores;
}

TokenList read_sentencepiece_list(const Lines& lines, const std::string& where) {
  TokenList list;
  list.kind = "a SentencePiece list of pieces";
  list.pieces_only = true;
  list.spelling = Spelling::kSentencePiece;
  list.note = "a SentencePiece list has only the pieces: to encode text, import the model (.model)";
  for (const std::string_view line : lines) {
    if (!is_scored(line)) {
      throw FormatError(fmt::format("{}: line {}", where, list.names.size() + 1),
                        "expected a piece and its score, with a tab between them",
                        "import the model (.model) that belongs to the list");
    }
    list.names.emplace_back(line.substr(0, line.rfind('\t')));
  }
  return list;
}

// In lists for BPE, a token that ends a word has this suffix.
constexpr std::string_view kWordEnd = "</w>";

bool ends_word(std::string_view token) {
  return token.size() > kWordEnd.size() && token.substr(token.size() - kWordEnd.size()) == kWordEnd;
}

// Returns true for a BPE merge list. Such a list has a "#version:" header, or nearly all of its
// lines have two symbols. A symbol is a single character or the result of an earlier merge.
bool is_merge_list(const Lines& lines) {
  const bool headed = !lines.empty() && lines[0].substr(0, 9) == "#version:";
  if (headed) return true;
  std::unordered_set<std::string> made;
  std::size_t good = 0, numbers = 0;
  const std::size_t head = std::min(lines.size(), kHeadLines);
  const auto is_symbol = [&](std::string_view text) {
    const std::string_view letter =
        text.substr(0, text.size() - (ends_word(text) ? kWordEnd.size() : 0));
    return code_point_at(letter, 0).length == letter.size() || made.count(std::string(text)) != 0;
  };
  for (std::size_t i = 0; i < head; ++i) {
    const Fields fields = fields_of(lines[i]);
    if (fields.size() != 2) continue;
    good += is_symbol(fields[0]) && is_symbol(fields[1]) ? 1 : 0;
    numbers += id_of(fields[0]) || id_of(fields[1]) ? 1 : 0;
    made.insert(std::string(fields[0]) + std::string(fields[1]));
  }
  return good * 10 >= head * 9 && numbers * 2 < head;
}

// Returns true if the line has a token and the values of its vector.
bool is_vector(std::string_view line) {
  constexpr std::size_t kFewestNumbers = 3;
  const Fields fields = fields_of(line);
  bool fraction = false;
  for (std::size_t i = 1; i < fields.size(); ++i) {
    if (!real_of(fields[i])) return false;
    fraction = fraction || fields[i].find('.') != std::string_view::npos;
  }
  return fields.size() > kFewestNumbers && fraction;
}

// Returns true if the first line states the counts of tokens and dimensions, as in files of
// word2vec and fastText.
bool has_vector_head(const Lines& lines) {
  if (lines.size() < 2) return false;
  const Fields head = fields_of(lines[0]);
  const auto size = head.size() == 2 ? id_of(head[1]) : std::nullopt;
  if (!size || !id_of(head[0])) return false;
  const Fields first = fields_of(lines[1]);
  return first.size() > 2 && first.size() - 1 == *size && real_of(first[1]);
}

bool is_comma_line(std::string_view line) {
  const std::size_t comma = line.rfind(',');
  if (comma == std::string_view::npos || comma == 0) return false;
  return id_of(line.substr(comma + 1)) ||
         (id_of(line.substr(0, line.find(','))) && line.find(',') + 1 < line.size());
}

// Returns true if the line is like '"the": 5' or 'the: 5', as Marian writes YAML.
bool is_yaml_line(std::string_view line) {
  const std::size_t colon = line.rfind(": ");
  return colon != std::string_view::npos && colon > 0 && id_of(line.substr(colon + 2));
}

bool is_quoted(std::string_view line) {
  return line.size() > 2 && (line.front() == '\'' || line.front() == '"') &&
         line.back() == line.front();
}

// Returns true if the first line has headings of columns and no token: it has words of letters, one
// for each column, and one of the columns has a number in every other line. Lines of pieces are
// complete tokens, so they have columns only if the numbers are ids.
bool has_heading(const Lines& lines, std::optional<TokenType> type) {
  const Fields heading = fields_of(lines[0]);
  if (lines.size() < 3 || heading.size() < 2) return false;
  const auto is_letter = [](char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
  };
  const auto is_word = [&](std::string_view field) {
    return std::all_of(field.begin(), field.end(), is_letter);
  };
  if (!std::all_of(heading.begin(), heading.end(), is_word)) return false;
  if (type == TokenType::kPiece) {
    const Lines rest(lines.begin() + 1, lines.end());
    return numbers_lines(rest, id_first_entry) || numbers_lines(rest, id_last_entry);
  }
  const auto is_numbered = [&](std::size_t column) {
    return std::all_of(lines.begin() + 1, lines.end(), [&](std::string_view line) {
      const Fields fields = fields_of(line);
      // The last column stays the last where a token before it has blanks.
      return fields.size() >= heading.size() &&
             id_of(column + 1 == heading.size() ? fields.back() : fields[column]);
    });
  };
  for (std::size_t column = 0; column < heading.size(); ++column) {
    if (is_numbered(column)) return true;
  }
  return false;
}

// Throws FormatError for files of other kinds, and for lists of unsupported form.
void refuse_others(const Lines& lines, std::string_view text, std::optional<TokenType> type,
                   const std::string& where) {
  const struct {
    bool holds;
    const char *what, *remedy;
  } kinds[] = {
      {text.substr(0, 2) == "{'", "this is a dictionary as Python prints it, not a list of tokens",
       "write the tokens with their ids as JSON, with json.dump"},
      {is_merge_list(lines), "this is a list of BPE merges, which has no tokens with ids",
       "give the vocab.json or tokenizer.json that belongs to the merges"},
      {has_vector_head(lines),
       "the tokens have vectors, and the first line has the counts of tokens and dimensions",
       "give only the tokens: tail -n +2 FILE | awk '{print $1}' > OTHER"},
      {most(lines, is_vector), "the tokens have vectors",
       "give only the tokens: awk '{print $1}' FILE > OTHER"},
      {most(lines, is_comma_line), "this is a table with commas (CSV), not a list of tokens",
       "write one token per line in the order of their ids (for --counts, each with a count)"},
      {has_heading(lines, type), "the first line is a heading, not a token",
       "remove it (tail -n +2 FILE > OTHER) or, if it is a token, give it a number, too"},
      {most(lines, is_quoted), "the tokens are in quotes",
       "remove the quotes: sed -E \"s/^(['\\\"])(.*)\\1\\r?$/\\2/\" FILE > OTHER"},
      {lines.front() == "---" || most(lines, is_yaml_line),
       "this is YAML, as Marian writes it, not a list of tokens",
       "write it as JSON: python3 -c 'import json, sys, yaml; json.dump({token: int(number) for "
       "token, number in yaml.load(sys.stdin, yaml.BaseLoader).items()}, sys.stdout)' < FILE > "
       "OTHER"},
  };
  for (const auto& kind : kinds) {
    if (kind.holds) throw FormatError(where, kind.what, kind.remedy);
  }
}

}  // namespace

std::optional<TokenList> read_token_list(std::string_view text, std::optional<TokenType> type,
                                         bool counted, const std::string& where) {
  const Lines lines = lines_of(text);
  if (lines.empty()) return std::nullopt;
  if (is_tiktoken(lines)) {
    TokenList list = read_entries(lines, "a tiktoken list", tiktoken_entry, where);
    list.pieces_only = true;
    list.spelling = Spelling::kPlain;
    return list;
  }
  refuse_others(lines, text, type, where);
  if (is_sentencepiece_list(lines)) return read_sentencepiece_list(lines, where);
  TokenList list;
  const bool numbers_last = all(lines, id_last_entry);
  // A token before a tab may have blanks.
  const bool columns =
      all(lines, [](std::string_view line) { return line.find('\t') != std::string_view::npos; });
  // In some lists of words and counts most words are numbers.
  const auto numbered = [](std::string_view line) {
    return id_first_entry(line) && !id_last_entry(line) &&
           line.find(kFairseqOverwrite) == std::string_view::npos;
  };
  if (!numbers_last && numbers_lines(lines, id_first_entry)) {
    list = read_entries(lines, "a list of ids and tokens", id_first_entry, where);
  } else if (!numbers_last && (all(lines, id_first_entry) || most(lines, numbered))) {
    throw FormatError(where,
                      "the numbers before the tokens are not ids: ids ascend by one from 0 or 1 in "
                      "all lines, and there are at least three",
                      "write ids as a JSON object of tokens and ids, or counts after the tokens: "
                      "awk 'NF > 1 {print $2, $1}' FILE > OTHER");
  } else if (numbers_last && numbers_lines(lines, id_last_entry)) {
    list = read_entries(lines, "a list of tokens and ids", id_last_entry, where);
  } else if (!counted && numbers_last && (type != TokenType::kPiece || columns) &&
             may_be_ids(lines)) {
    throw FormatError(
        where, "the numbers after the tokens may be ids that have gaps or another order, or counts",
        fmt::format(
            "write ids as a JSON object of tokens and ids, and remove counts: {} FILE > OTHER",
            columns ? "cut -f 1" : "awk '{print $1}'"));
  } else {
    return std::nullopt;
  }
  // A list without a type has pieces if it marks their blanks, and blanks around pieces are theirs.
  if (type == TokenType::kWord || (!type && evident_spelling(list.names) == Spelling::kPlain)) {
    std::for_each(list.names.begin(), list.names.end(), trim);
  }
  list.type = TokenType::kWord;
  list.note = "this is " + list.kind + ": the numbers are ids, not counts";
  return list;
}

TokenList read_json_tokens(const Json& json, const std::string& where) {
  TokenList list;
  TokensById tokens(json.size(), where);
  std::size_t place = 0;
  for (const auto& [key, value] : json.items()) {
    std::optional<std::uint64_t> id;
    std::optional<std::string> token;
    if (json.is_array()) {
      id = place++;
    } else if (value.is_number_unsigned()) {
      id = value.get<std::uint64_t>();
      token = key;
    } else {
      id = id_of(key);
    }
    if (value.is_string()) token = value.get<std::string>();
    if (!id || !token) {
      throw FormatError(
          where,
          json.is_array()
              ? fmt::format("expected a JSON array of tokens, found {} in it", value.dump())
              : fmt::format(
                    "this JSON object is neither a tokenizer.json (it has no object "
                    "'model') nor tokens with ids ({} and its value are not a token and an id)",
                    in_quotes(key)),
          "give the tokenizer.json, or a list with --type piece; a vocabulary of qltok needs no "
          "import");
    }
    if (token->empty()) {
      throw FormatError(where, fmt::format("the token with the id {} has no text", *id),
                        fmt::format("give it a text, such as <missing:{}>", *id));
    }
    tokens.add(*id, *token);
  }
  list.kind = json.is_array() ? "a JSON array of tokens" : "a JSON object of tokens and ids";
  list.names = tokens.names();
  return list;
}

void refuse_joined(const std::vector<std::string>& tokens, bool counted, const std::string& where) {
  const auto continues = [](const std::string& token) {
    return token.size() > 2 && token.compare(0, 2, "##") == 0 && token[2] != '#';
  };
  const bool pieces = std::find(tokens.begin(), tokens.end(), "[UNK]") != tokens.end() &&
                      std::any_of(tokens.begin(), tokens.end(), continues);
  // A list of words may contain a few tokens that end with </w> by chance.
  const auto ends = std::count_if(tokens.begin(), tokens.end(), ends_word);
  if (!pieces && (ends == 0 || static_cast<std::size_t>(ends) * 8 < tokens.size())) return;
  throw FormatError(
      where,
      fmt::format("the tokens are parts of words, marked by {}: qltok cannot encode text with them",
                  pieces ? "## (WordPiece)" : "</w>"),
      fmt::format("use them only as names of the ids: {} --type piece",
                  counted ? "awk '{print $1}' FILE | qltok vocab --import -"
                          : "qltok vocab --import FILE"));
}

FairseqList fairseq_list(std::string_view text, const std::string& where) {
  std::vector<std::string> parts = split(std::filesystem::path(where).filename().string(), '.');
  if (parts.back() == "gz" || parts.back() == "zst") parts.pop_back();
  const bool named =
      parts.size() >= 2 && parts.size() <= 3 && parts.front() == "dict" && parts.back() == "txt";
  bool recognized = named, specials = false;
  const auto overwrites_token = [](const Fields& fields) {
    return fields.size() == 3 && fields[2] == kFairseqOverwrite;
  };
  const auto has_form = [&](std::string_view line) {
    const Fields fields = fields_of(line);
    return (fields.size() == 2 || overwrites_token(fields)) && id_of(fields[1]);
  };
  const Lines lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!has_form(lines[i])) {
      if (!named || !most(lines, has_form)) return FairseqList::kNo;
      throw FormatError(
          fmt::format("{}: line {}", where, i + 1),
          "expected a word without blanks and its count, as in the other lines of a "
          "list of fairseq",
          "correct the line without removing it, which would move all later ids, or give "
          "--id-offset 0 if the list is not one of fairseq");
    }
    const Fields fields = fields_of(lines[i]);
    const bool overwrites = overwrites_token(fields);
    recognized = recognized || overwrites;
    specials = specials || (!overwrites && std::find(kFairseqTokens.begin(), kFairseqTokens.end(),
                                                     fields[0]) != kFairseqTokens.end());
  }
  if (!recognized) return FairseqList::kNo;
  return specials ? FairseqList::kWithSpecials : FairseqList::kYes;
}

}  // namespace ql::text
