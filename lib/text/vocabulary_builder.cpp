// Counts tokens with several threads, chooses the entries of a vocabulary, and adds up the counts
// of vocabularies that were made from parts of a text.

#include "text/vocabulary_builder.h"

#include <map>

#include "base/bytes.h"
#include "base/log.h"
#include "text/sentencepiece_training.h"
#include "text/token_counter.h"
#include "text/vocabulary_import.h"

namespace ql::text {
namespace {

constexpr const char* kEos = "<eos>";
constexpr const char* kUnk = "<unk>";
constexpr const char* kWhere = "the new vocabulary";
// The SentencePiece library multiplies the size by 1.1 in 32 bits, and never returns if that
// overflows.
constexpr std::int64_t kMostPieces = std::int64_t{1} << 24;

bool wants_eos(const VocabularyRules& rules) {
  if (rules.eos != Presence::kAuto) return rules.eos == Presence::kAlways;
  return rules.type == TokenType::kWord || rules.type == TokenType::kSentencePiece;
}

bool wants_unk(const VocabularyRules& rules) {
  if (rules.unk != Presence::kAuto) return rules.unk == Presence::kAlways;
  return rules.type == TokenType::kWord || rules.type == TokenType::kChar;
}

std::int64_t specials(const VocabularyRules& rules) {
  return (wants_eos(rules) ? 1 : 0) + (wants_unk(rules) ? 1 : 0);
}

void check_rules(const VocabularyRules& rules) {
  const std::string no_meaning = fmt::format("has no meaning with --type {}", to_text(rules.type));
  const bool bytes = rules.type == TokenType::kByte;
  const bool pieces = rules.type == TokenType::kSentencePiece;
  const bool unicode = rules.blanks == Blanks::kUnicode;
  const std::pair<bool, UsageError> problems[] = {
      {rules.type == TokenType::kPiece,
       {"--type piece", "such pieces come from another program's list, not from text",
        "give that list with --import, or learn pieces with --type sentencepiece"}},
      {bytes && rules.lowercase, {"--lowercase", "bytes have no case", "use --type char"}},
      {unicode && rules.type != TokenType::kWord,
       {"--blanks unicode", no_meaning, "leave the option out"}},
      {rules.min_count > 1 && (bytes || pieces),
       {"--min-count", no_meaning, "leave the option out"}},
      {rules.max_size > 0 && bytes,
       {"--max-size", "a vocabulary of bytes always has all 256 bytes", "leave the option out"}},
      {rules.max_size == 0 && pieces,
       {"--max-size", "--type sentencepiece needs a size", "try --max-size 8000"}},
      {rules.coverage && !pieces,
       {"--character-coverage", no_meaning, "leave the option out, or give --type sentencepiece"}},
      {pieces && rules.max_size > kMostPieces,
       {"--max-size",
        fmt::format("{} pieces are too many, expected at most {}", rules.max_size, kMostPieces)}},
      {rules.max_size > 0 && rules.max_size <= specials(rules),
       {"--max-size",
        fmt::format("{} leaves no room for tokens of the text after {}{}{}", rules.max_size,
                    wants_eos(rules) ? kEos : "", specials(rules) == 2 ? " and " : "",
                    wants_unk(rules) ? kUnk : ""),
        "give a larger size"}},
      {rules.eos == Presence::kNever && pieces,
       {"--eos", "a sentencepiece vocabulary always has <eos>",
        "encode with --eos none to leave it unused"}}};
  for (const auto& [holds, error] : problems) {
    if (holds) throw UsageError(error);
  }
}

// Calls add(line, begins, ended) for every line, or part of a line, in the block. The lines are
// valid UTF-8 (for type byte, any bytes), and lower-cased if the rules ask for that. Returns the
// number of lines that begin in the block.
template <typename Add>
std::int64_t for_each_line(TextBlock block, const VocabularyRules& rules, const Add& add) {
  validate_text(block, rules.type, rules.invalid);
  remove_mark(block, rules.type);
  if (rules.lowercase) block.text = lowercase(block.text);
  std::int64_t count = 0;
  bool begins = !block.place.continues_line;
  for (LineSplitter lines(block.text); lines.next();) {
    add(lines.line(), begins, lines.ended());
    count += begins ? 1 : 0;
    begins = lines.ended();
  }
  return count;
}

TextReader reader_of(const std::vector<std::string>& files, const VocabularyRules& rules) {
  return {files, line_cut(rules.type, rules.lowercase, rules.blanks), TextReader::kBlockBytes,
          TextReader::kLongestUnit, rules.content};
}

// Every thread counts some of the blocks. Chance decides which blocks a thread counts, but the sum
// is always the same. `initial...` are the arguments for the constructor of a counter.
template <typename Counter, typename... Initial>
Counter count_lines(const std::vector<std::string>& files, const VocabularyRules& rules,
                    int threads, std::int64_t& lines, Initial... initial) {
  const auto make = [&] { return std::make_unique<Counter>(initial...); };
  ObjectPool<Counter> counters;
  TextReader reader = reader_of(files, rules);
  work_on_blocks(
      reader, threads,
      [&](TextBlock block) {
        std::unique_ptr<Counter> counter = counters.take(make);
        const std::int64_t begun = for_each_line(
            std::move(block), rules, [&](std::string_view line, bool begins, bool ended) {
              counter->add(line, begins, ended);
            });
        counters.give_back(std::move(counter));
        return begun;
      },
      [&](std::int64_t begun) { lines += begun; });
  const std::unique_ptr<Counter> sum = counters.take(make);
  for (const std::unique_ptr<Counter>& counter : counters.idle()) sum->merge(*counter);
  return std::move(*sum);
}

// Removes `token` from `counts` and returns its count.
std::int64_t take(std::vector<TokenCount>& counts, const char* token) {
  const auto found = std::find_if(counts.begin(), counts.end(),
                                  [&](const TokenCount& each) { return each.token == token; });
  if (found == counts.end()) return 0;
  const std::int64_t count = found->count;
  counts.erase(found);
  return count;
}

// Sorts the tokens by falling count, and drops those below min_count and those beyond max_size.
// Returns the sum of the dropped counts. Throws UsageError if min_count drops all tokens.
std::int64_t select(std::vector<TokenCount>& counts, const VocabularyRules& rules) {
  std::sort(counts.begin(), counts.end(), [](const TokenCount& a, const TokenCount& b) {
    return a.count != b.count ? a.count > b.count : a.token < b.token;
  });
  std::size_t kept = counts.size();
  if (rules.max_size > 0) {
    kept = std::min(kept, static_cast<std::size_t>(rules.max_size - specials(rules)));
  }
  while (kept > 0 && counts[kept - 1].count < rules.min_count) --kept;
  if (kept == 0 && !counts.empty()) {
    throw UsageError(
        "--min-count",
        fmt::format("leaves no token of the text: {}, the most frequent one, occurs {}",
                    in_quotes(counts.front().token), counted(counts.front().count, "time")),
        "give a smaller number");
  }
  std::int64_t dropped = 0;
  for (std::size_t i = kept; i < counts.size(); ++i) dropped += counts[i].count;
  counts.resize(kept);
  return dropped;
}

void add_token(VocabularyContent& content, std::string token, std::int64_t count) {
  content.tokens.push_back(std::move(token));
  content.counts.push_back(count);
}

// Holds the counts of a text before the entries of the vocabulary are chosen.
struct Counted {
  std::vector<TokenCount> tokens;
  std::int64_t lines = 0;
  LineStyle line_style = LineStyle::kPlain;
  std::int64_t unknown = 0;  // add_counts() only: the sum of the counts of <unk> in its files
};

Counted count_text(const std::vector<std::string>& files, const VocabularyRules& rules,
                   int threads) {
  Counted counted;
  if (rules.type == TokenType::kChar) {
    counted.tokens = count_lines<CharCounter>(files, rules, threads, counted.lines).counts();
  } else if (rules.type == TokenType::kByte) {
    counted.tokens = count_lines<ByteCounter>(files, rules, threads, counted.lines).counts();
  } else {
    const auto words = count_lines<WordCounter>(files, rules, threads, counted.lines, rules.blanks);
    counted.tokens = words.counts();
    counted.line_style = words.line_style();
  }
  return counted;
}

BuiltVocabulary choose_entries(Counted counted, const VocabularyRules& rules) {
  const bool is_word = rules.type == TokenType::kWord, eos = wants_eos(rules),
             unk = wants_unk(rules);
  std::vector<TokenCount>& counts = counted.tokens;
  std::int64_t tokens = counted.unknown;
  std::int64_t types = 0;
  for (const TokenCount& each : counts) {
    tokens += each.count;
    types += each.count > 0 ? 1 : 0;
  }
  if (tokens == 0 && rules.type != TokenType::kByte) {
    // A part of a larger text may be blank lines, which only the count of <eos> shows.
    if (counted.lines == 0 || !eos) {
      throw Error("", "no text to make a vocabulary from",
                  "give a file with words in it (for --counts, with counts above 0)");
    }
    log_warning("the text is {} blank {}: the vocabulary has no words", counted.lines,
                counted.lines == 1 ? "line" : "lines");
  }
  const std::int64_t reserved = is_word && eos ? take(counts, kEos) : 0;
  const std::int64_t unk_in_text = is_word && unk ? take(counts, kUnk) : 0;
  std::int64_t unknown = reserved + counted.unknown;
  if (rules.type != TokenType::kByte) unknown += select(counts, rules);

  VocabularyContent content;
  content.type = rules.type;
  content.lowercase = rules.lowercase;
  content.line_style = counted.line_style;
  content.blanks = rules.blanks;
  if (eos) {
    content.eos = 0;
    add_token(content, kEos, counted.lines);
  }
  if (unk) {
    content.unk = static_cast<TokenId>(content.tokens.size());
    add_token(content, kUnk, unk_in_text + unknown);
  }
  for (TokenCount& each : counts) add_token(content, std::move(each.token), each.count);
  return {Vocabulary(std::move(content), kWhere), counted.lines, tokens, types, unknown, reserved};
}

void add(std::int64_t& sum, std::int64_t count, const std::string& where) {
  if (__builtin_add_overflow(sum, count, &sum)) {
    throw Error(where, "the sum of all counts up to this file exceeds 2^63 - 1",
                "no text has that many tokens: correct the counts");
  }
}

// Throws Error for a vocabulary made with --max-size, or with --min-count above 1. Such a
// vocabulary may lack tokens of its text, so add_counts() would miss their counts.
void refuse_left_out(const Json& provenance, const std::string& where) {
  const Json configuration =
      provenance.is_object() ? provenance.value("configuration", Json()) : Json();
  if (!configuration.is_object()) return;
  const bool rare = configuration.value("min-count", Json("1")) != "1";
  if (!rare && !configuration.contains("max-size")) return;
  const char* option = rare ? "--min-count" : "--max-size";
  throw Error(
      where, fmt::format("this vocabulary may lack tokens: it was made with {}", option),
      fmt::format("make the file again without {0}, and give {0} with --counts instead", option));
}

void require_rule(bool same, const std::string& where, const std::string& found,
                  const std::string& remedy) {
  if (same) return;
  throw Error(where, "this is a vocabulary " + found + ", unlike the sum to be made",
              remedy + ", or make this file again with the options of the other files");
}

bool has_counts(const Vocabulary& part) {
  return std::any_of(part.counts().begin(), part.counts().end(),
                     [](std::int64_t count) { return count > 0; });
}

// Parses the `text` of the file `name`.
Vocabulary parse_part(const std::string& text, const std::string& name,
                      const VocabularyRules& rules) {
  const std::string file = name == "-" ? "standard input" : name;
  if (begins_json(text)) {
    Json provenance;
    Vocabulary part = parse_vocabulary(text, file, &provenance);
    const std::string type = to_text(part.type());
    // This check comes first: refuse_left_out() would advise making the part anew without
    // --max-size, which is wrong for these types.
    if (part.type() == TokenType::kSentencePiece || part.type() == TokenType::kPiece) {
      throw Error(file,
                  "this is a vocabulary of type " + type + ", whose counts cannot be added up",
                  "give vocabularies of type word, char or byte");
    }
    refuse_left_out(provenance, file);
    require_rule(part.type() == rules.type, file, "of type " + type, "give --type " + type);
    require_rule(part.lowercase() == rules.lowercase, file,
                 part.lowercase() ? "in lower case" : "that is not in lower case",
                 part.lowercase() ? "give --lowercase" : "leave out --lowercase");
    const std::string blanks = "--blanks " + to_text(part.blanks());
    require_rule(part.blanks() == rules.blanks, file, "made with " + blanks, "give " + blanks);
    require_rule(part.eos().has_value() == wants_eos(rules), file,
                 part.eos() ? "with <eos>" : "without <eos>",
                 part.eos() ? "give --eos always" : "give --eos never");
    require_rule(part.unk().has_value() == wants_unk(rules), file,
                 part.unk() ? "with <unk>" : "without <unk>",
                 part.unk() ? "give --unk always" : "give --unk never");
    if (part.type() != TokenType::kByte && !has_counts(part)) {
      throw FormatError(file, "no count of this vocabulary is above 0",
                        "leave it out if its text is empty, or make it from text");
    }
    return part;
  }
  if (rules.type != TokenType::kWord) {
    throw FormatError(file, "not a vocabulary file: expected a JSON object",
                      "if this is a list of words and counts, leave --type out");
  }
  VocabularyImport list;
  list.type = TokenType::kWord;
  list.lowercase = rules.lowercase;
  list.blanks = rules.blanks;
  list.eos = list.unk = Presence::kNever;
  list.counted = true;
  Vocabulary part = import_vocabulary(text, list, file);
  if (!has_counts(part)) {
    throw FormatError(
        file, "no count in this list is above 0 (numbers that ascend by one from 0 or 1 are ids)",
        "write the count after each word, the largest count first");
  }
  return part;
}

// Returns the id of <eos> or <unk> in `part`: the `id` that the vocabulary declares, if any. A list
// of words and counts declares no ids, so a `wanted` token is found by its `name`.
std::optional<TokenId> special_of(const Vocabulary& part, std::optional<TokenId> id, bool wanted,
                                  const char* name) {
  if (id || !wanted || part.type() != TokenType::kWord) return id;
  const TokenId found = part.find(name);
  return found == TokenTable::kNone ? std::nullopt : std::optional(found);
}

Counted count_parts(const std::vector<std::string>& files, const VocabularyRules& rules) {
  Counted counted;
  counted.line_style = LineStyle::kPadded;
  TokenTable tokens;
  std::vector<std::int64_t> counts;
  std::map<std::string, std::string> read;  // the hash of each content, and the first file with it
  for (const std::string& file : files) {
    const std::string text = read_vocabulary_file(file, true);
    const auto [first, fresh] = read.try_emplace(content_hash(text), file);
    if (!fresh) {
      log_warning("{} and {} have the same content, whose counts are added each time",
                  first->second, file);
    }
    const Vocabulary part = parse_part(text, file, rules);
    if (part.line_style() == LineStyle::kPlain) counted.line_style = LineStyle::kPlain;
    const auto eos = special_of(part, part.eos(), wants_eos(rules), kEos);
    const auto unk = special_of(part, part.unk(), wants_unk(rules), kUnk);
    for (TokenId id = 0; id < part.size(); ++id) {
      const std::int64_t count = part.counts()[id];
      if (id == eos) {
        add(counted.lines, count, file);
      } else if (id == unk) {
        add(counted.unknown, count, file);
      } else if (count > 0 || rules.type == TokenType::kByte) {
        // With --lowercase, the words of a vocabulary are in lower case already, but the words of a
        // list may not be.
        const std::uint32_t number = rules.lowercase ? tokens.insert(lowercase(part.token(id)))
                                                     : tokens.insert(part.token(id));
        if (number == counts.size()) counts.push_back(0);
        add(counts[number], count, file);
      }
    }
  }
  std::int64_t all = counted.unknown;
  for (std::uint32_t number = 0; number < tokens.size(); ++number) {
    add(all, counts[number], files.back());
    counted.tokens.push_back({std::string(tokens.token(number)), counts[number]});
  }
  return counted;
}

BuiltVocabulary train_vocabulary(const std::vector<std::string>& files,
                                 const VocabularyRules& rules) {
  std::string text;
  std::vector<std::size_t> ends;  // offsets in text at which lines end
  std::int64_t line_count = 0;
  TextReader reader = reader_of(files, rules);
  for (TextBlock block; reader.next(block);) {
    line_count += for_each_line(std::move(block), rules, [&](std::string_view line, bool, bool) {
      text.append(line);
      ends.push_back(text.size());
    });
  }
  std::vector<std::string_view> lines;
  for (std::size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
    lines.push_back(std::string_view(text).substr(begin, ends[i] - begin));
  }

  VocabularyContent content;
  content.type = rules.type;
  content.lowercase = rules.lowercase;
  content.eos = 0;
  content.unk = 1;
  TrainedSentencePiece trained =
      train_sentencepiece(lines, {rules.max_size, !wants_unk(rules), rules.coverage});
  content.model = std::move(trained.model);
  const SentencePieceModel model(content.model, kWhere);
  for (std::uint32_t id = 0; id < model.size(); ++id) add_token(content, model.piece(id), 0);

  // The pieces are counted by encoding the text with the trained model. The vocabulary itself does
  // not depend on the counts.
  const Vocabulary uncounted(content, kWhere);
  const auto encoder = make_line_encoder(uncounted);
  Unknowns unknowns(uncounted, UnknownRule::kUnk);
  std::vector<TokenId> ids;
  std::int64_t tokens = 0;
  for (const std::string_view line : lines) {
    ids.clear();
    encoder->encode(line, ids, unknowns);
    for (const TokenId id : ids) ++content.counts[id];
    tokens += static_cast<std::int64_t>(ids.size());
  }
  content.counts[*content.eos] = line_count;
  BuiltVocabulary built{Vocabulary(std::move(content), kWhere), line_count, tokens};
  built.unknown = unknowns.count();
  built.characters = trained.characters;
  built.covered = trained.covered;
  built.coverage_lowered = trained.lowered;
  return built;
}

}  // namespace

BuiltVocabulary build_vocabulary(const std::vector<std::string>& files,
                                 const VocabularyRules& rules, int threads) {
  check_rules(rules);
  return rules.type == TokenType::kSentencePiece
             ? train_vocabulary(files, rules)
             : choose_entries(count_text(files, rules, threads), rules);
}

BuiltVocabulary add_counts(const std::vector<std::string>& files, const VocabularyRules& rules) {
  if (rules.type == TokenType::kSentencePiece) {
    throw UsageError("--counts", "pieces are learned from text, not from the counts of parts",
                     "give the text of all parts without --counts");
  }
  check_rules(rules);
  return choose_entries(count_parts(files, rules), rules);
}

}  // namespace ql::text
