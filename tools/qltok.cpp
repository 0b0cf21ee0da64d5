// qltok makes and prints vocabularies, encodes text as a token stream, and decodes a stream. See
// qltok(1).
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/provenance.h"
#include "base/stream.h"
#include "base/strings.h"
#include "base/tool.h"
#include "interop/plain_ids.h"
#include "shard/same_vocabulary.h"
#include "tables.h"
#include "text/decoder.h"
#include "text/encoder.h"
#include "text/vocabulary_builder.h"
#include "text/vocabulary_import.h"

using namespace ql;
using namespace ql::interop;
using namespace ql::shard;
using namespace ql::text;

static std::string percent(std::int64_t part, std::int64_t total) {
  return fmt::format(
      "{:.2f} %",
      total == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(total));
}

// Warns if a text has the word <eos> (`count` > 0). The vocabulary must then have <eos>.
static void warn_of_reserved(std::int64_t count, const Vocabulary& vocabulary) {
  if (count == 0) return;
  const std::string eos(vocabulary.token(*vocabulary.eos()));
  log_warning("the text has the word {} (count: {}), which {}, because {} stands for line ends",
              eos, with_thousands(count),
              vocabulary.unk() ? "becomes <unk>" : "the vocabulary cannot encode", eos);
}

// Returns the configuration for the provenance, without the name of the output file.
static Json configuration(const Options& options, const std::vector<std::string>& names) {
  Json json = configuration_of(options, names);
  json.erase("output");
  return json;
}

// Returns the token name that `option` gives, or "".
static std::string token_name(const Options& options, const char* option) {
  if (!options.has(option)) return "";
  if (options.text(option).empty()) {
    throw UsageError(fmt::format("--{}", option), "expected the name of a token, found ''",
                     "leave the option out");
  }
  return options.text(option);
}

static void report_missing_specials(const Vocabulary& vocabulary, const VocabularyImport& rules) {
  const TokenType type = vocabulary.type();
  const bool names = type == TokenType::kPiece;
  if (!vocabulary.eos() && rules.eos != Presence::kNever) {
    log_info("no token of the vocabulary is <eos>, so {}; --eos-token chooses one",
             names                      ? "qlbin import cannot find documents by it"
             : type == TokenType::kWord ? "line ends of a text are not encoded"
                                        : "line ends are encoded like other characters");
  }
  if (!vocabulary.unk() && rules.unk != Presence::kNever) {
    log_info("no token of the vocabulary is <unk>, so {}; --unk-token chooses one",
             names ? "no token counts as unknown" : "a word outside the vocabulary is an error");
  }
}

static bool is_vocabulary(const RandomAccessFile& file) {
  const bool may_be = file.head().substr(0, 1) == "{" &&
                      file.size() <= static_cast<std::int64_t>(shard::kLargestVocabularyText);
  return may_be && file.text(file.size()).find("\"ql-vocabulary\"") != std::string::npos;
}

static bool is_stream(const RandomAccessFile& file) {
  return file.head().substr(0, shard::kStreamMagic.size()) == shard::kStreamMagic;
}

// Throws Error if the file of -o has content of another kind, as where the shell completes
// "-o *.txt".
static void refuse_to_replace_others(const std::string& path, const std::string& kind,
                                     bool (*is_kind)(const RandomAccessFile&)) {
  std::error_code absent;
  if (path != "-" && std::filesystem::is_regular_file(path, absent) &&
      std::filesystem::file_size(path, absent) > 0 && !is_kind(RandomAccessFile(path))) {
    throw Error(path, fmt::format("exists and is not a {}, so it is not replaced", kind),
                "give another name, or remove the file");
  }
}

// Returns input_names(). Throws SystemError for a file that cannot be read, before the first one
// is.
static std::vector<std::string> text_names(const Options& options) {
  std::vector<std::string> names = input_names(options);
  std::error_code absent;
  for (const std::string& name : names) {
    if (name == "-") continue;
    const bool is_folder = std::filesystem::is_directory(name, absent);
    if (is_folder || ::access(name.c_str(), R_OK) != 0) {
      throw SystemError(name, "open", is_folder ? EISDIR : errno);
    }
  }
  return names;
}

// Returns the names of all files that are read: `names`, and the values of these options. A folder
// stands for its vocabulary.
static std::vector<std::string> files_read(const Options& options, std::vector<std::string> names,
                                           const std::vector<std::string>& of_options) {
  if (names.empty()) names.emplace_back("-");
  for (const std::string& option : of_options) {
    if (options.has(option)) names.push_back(options.text(option));
  }
  std::error_code absent;
  for (std::string& name : names) {
    const bool is_folder = std::filesystem::is_directory(name, absent);
    if (is_folder) name = (std::filesystem::path(name) / shard::kVocabularyFile).string();
  }
  return names;
}

static void import_vocabulary(const Options& options) {
  // These options are for counting text or merging counts, but --import does neither.
  options.refuse({"min-count", "max-size", "character-coverage", "invalid", "raw", "threads",
                  "files-from", "counts"},
                 "", "--{} does not go with --import", "leave one of them out");
  const std::string path = options.text("import");
  if (!options.positional().empty()) {
    throw UsageError("--import", fmt::format("takes the vocabulary from {}, not from text", path),
                     fmt::format("leave out {}", options.positional().front()));
  }
  VocabularyImport rules;
  if (options.given("type")) rules.type = options.choice<TokenType>("type");
  rules.lowercase = options.flag("lowercase");
  rules.blanks = find_named<Blanks>(options.text("blanks"));
  rules.eos = options.choice<Presence>("eos");
  rules.unk = options.choice<Presence>("unk");
  rules.eos_token = token_name(options, "eos-token");
  rules.unk_token = token_name(options, "unk-token");
  if (options.has("id-offset")) {
    rules.id_offset = static_cast<std::uint32_t>(options.integer("id-offset"));
  }
  refuse_to_replace_others(options.text("output"), "vocabulary", is_vocabulary);
  OutputStream out(options.text("output"), false);
  refuse_to_replace(options.text("output"), {path});
  std::vector<std::string> notes;
  const Vocabulary vocabulary = import_vocabulary(read_vocabulary_file(path, true), rules,
                                                  path == "-" ? "standard input" : path, &notes);
  check_for_stop();
  out.write(vocabulary.to_text(provenance(configuration(options, {}))));
  out.close();
  for (const std::string& note : notes) log_info("{}", note);
  log_info("{}", describe(vocabulary.info()));
  report_missing_specials(vocabulary, rules);
  if (vocabulary.type() != TokenType::kWord || rules.blanks) return;
  if (vocabulary.blanks() == Blanks::kUnicode) {
    log_info(
        "words end at Unicode blanks, because no word of the list contains one; --blanks ascii "
        "chooses ASCII blanks");
  } else {
    log_info("words end at ASCII blanks only, because words of the list contain other blanks");
  }
}

static void make_vocabulary(const Options& options) {
  if (options.given("import")) return import_vocabulary(options);
  options.refuse({"eos-token", "unk-token"}, "", "--{} goes with --import only",
                 "leave it out: tokens made from text are named <eos> and <unk>");
  options.refuse({"id-offset"}, "", "--{} goes with --import only",
                 "leave it out: ids made from text begin with 0");
  VocabularyRules rules;
  rules.type = options.choice<TokenType>("type");
  rules.lowercase = options.flag("lowercase");
  rules.min_count = options.integer("min-count");
  if (options.has("max-size")) rules.max_size = options.integer("max-size");
  if (options.has("character-coverage")) rules.coverage = options.real("character-coverage");
  rules.blanks = find_named<Blanks>(options.text("blanks")).value_or(Blanks::kAscii);
  rules.eos = options.choice<Presence>("eos");
  rules.unk = options.choice<Presence>("unk");
  rules.invalid = options.choice<InvalidText>("invalid");
  rules.content = content_of(options, Content::kText);

  const bool parts = options.flag("counts");
  if (parts) {
    options.refuse({"character-coverage", "invalid", "raw", "threads"}, "",
                   "--{} does not go with --counts", "leave it out: no text is read");
  }

  // The output is opened first, so that a missing folder is reported before text is counted, which
  // takes long.
  refuse_to_replace_others(options.text("output"), "vocabulary", is_vocabulary);
  OutputStream out(options.text("output"), false);
  // Parts may be folders with a vocabulary.
  const std::vector<std::string> names = parts ? input_names(options) : text_names(options);
  refuse_to_replace(options.text("output"), files_read(options, names, {"files-from"}));
  if (parts && names.empty()) {
    throw UsageError("--counts", "no FILE is given",
                     "give vocabularies of the parts of a text, or lists of counts");
  }
  const auto built =
      parts ? add_counts(names, rules) : build_vocabulary(names, rules, threads_of(options));
  check_for_stop();
  out.write(built.vocabulary.to_text(provenance(configuration(options, names))));
  out.close();
  // Counts of parts have the number of lines only as that of <eos>.
  const bool knows_lines = !parts || built.lines > 0;
  log_info("{}tokens: {}{}",
           knows_lines ? fmt::format("lines: {}, ", with_thousands(built.lines)) : "",
           with_thousands(built.tokens),
           built.types == 0 ? "" : ", distinct: " + with_thousands(built.types));
  log_info("entries: {}; outside the vocabulary: {} of {} tokens ({})",
           with_thousands(built.vocabulary.size()), with_thousands(built.unknown),
           with_thousands(built.tokens), percent(built.unknown, built.tokens));
  if (built.coverage_lowered) {
    log_info(
        "characters: {}, of which {} have pieces of their own; --max-size has no room for more",
        with_thousands(built.characters), with_thousands(built.covered));
  }
  warn_of_reserved(built.reserved, built.vocabulary);
}

static EncodeOptions encode_options(const Options& options, const Vocabulary& vocabulary) {
  EncodeOptions rules;
  rules.eos = find_named<EosRule>(options.text("eos")).value_or(usual_eos(vocabulary));
  rules.documents = DocumentRule(options.text("document"));
  rules.invalid = options.choice<InvalidText>("invalid");
  rules.content = content_of(options, Content::kText);
  rules.unknown = options.choice<UnknownRule>("unknown");
  return rules;
}

static void report(const EncodeTotals& totals, const Vocabulary& vocabulary) {
  const bool words = vocabulary.type() == TokenType::kWord;
  const std::int64_t all = words ? totals.counts.words : totals.tokens;
  log_info("lines: {}, words: {}, tokens: {}, documents: {}", with_thousands(totals.counts.lines),
           with_thousands(totals.counts.words), with_thousands(totals.tokens),
           with_thousands(totals.documents));
  log_info("outside the vocabulary: {} of {} {} ({})", with_thousands(totals.counts.unknown),
           with_thousands(all), words ? "words" : "tokens", percent(totals.counts.unknown, all));
  const std::int64_t in_text = totals.unk - totals.counts.unknown;
  if (in_text > 0) {
    log_info("<unk> in the text itself: {} ({})", with_thousands(in_text), percent(in_text, all));
  }
  warn_of_reserved(totals.reserved, vocabulary);
}

static void encode(const Options& options) {
  const std::string format = options.text("output");
  OutputStream out(options.text("output-file"), format == "stream");
  const std::string path = options.text("vocab");
  StreamHeader header;
  header.vocabulary_text = read_vocabulary_file(path);
  const Vocabulary vocabulary = parse_vocabulary(header.vocabulary_text, path);
  const EncodeOptions rules = encode_options(options, vocabulary);
  const Encoder encoder(vocabulary, rules);
  header.vocabulary = vocabulary.info();
  const std::vector<std::string> names = text_names(options);
  refuse_to_replace(options.text("output-file"),
                    files_read(options, names, {"files-from", "vocab"}));
  if (format == "stream") {
    refuse_to_replace_others(options.text("output-file"), "token stream", is_stream);
  }
  header.provenance = provenance(configuration(options, names));
  std::unique_ptr<TokenSink> sink;
  if (format == "pieces") {
    sink = std::make_unique<PieceWriter>(vocabulary, rules.eos,
                                         [&out](std::string_view text) { out.write(text); });
  } else {
    sink = make_token_writer(
        format, [&out](const void* data, std::size_t size) { out.write(data, size); }, header);
  }
  std::optional<StopAtOnce> at_once;  // a search does not check for signals
  if (rules.documents.may_take_long()) at_once.emplace();
  const auto totals = encode_files(names, encoder, threads_of(options), *sink, [&] {
    sink->flush();
    out.flush();
  });
  at_once.reset();
  sink->finish(totals.counts);
  out.close();
  report(totals, vocabulary);
  if (rules.documents.is_expression() && totals.documents == 1) {
    const std::string rule = options.text("document");
    const std::string name = nearest(rule, {"blank", "file", "line", "none"});
    if (name.empty()) return;
    log_warning("--document {} is an expression that begins no second document; did you mean {}?",
                in_quotes(rule), name);
  }
}

static DecodeOptions decode_options(const Options& options, const Vocabulary& vocabulary) {
  DecodeOptions rules;
  rules.eos = options.choice<EosRule>("eos");
  if (rules.eos == EosRule::kDouble && !vocabulary.eos()) {
    throw UsageError("--eos double", "the vocabulary has no <eos>", "leave --eos out");
  }
  if (options.text("line-style") != "auto" && vocabulary.type() != TokenType::kWord) {
    throw UsageError("--line-style", "goes with a vocabulary of words only",
                     "leave it out: the tokens of this one have their blanks");
  }
  rules.line_style =
      find_named<LineStyle>(options.text("line-style")).value_or(vocabulary.line_style());
  return rules;
}

// Returns the vocabulary of --vocab or else of the stream. Throws Error if there is neither, or if
// the stream's header has another hash than the vocabulary.
static Vocabulary stream_vocabulary(const Options& options, const StreamHeader& header,
                                    const std::string& stream) {
  const bool given = options.has("vocab");
  if (!given && header.vocabulary_text.empty()) {
    throw Error(stream, "the token stream contains no vocabulary", "give one with --vocab");
  }
  const std::string where = given ? options.text("vocab") : stream + ": vocabulary";
  Vocabulary vocabulary =
      parse_vocabulary(given ? read_vocabulary_file(where) : header.vocabulary_text, where);
  shard::require_same_vocabulary(
      {where, vocabulary.info()}, {stream, header.vocabulary},
      !given ? "give --vocab with the vocabulary that the text was encoded with"
      : header.vocabulary_text.empty()
          ? "give the vocabulary that the text was encoded with"
          : "give the vocabulary that the text was encoded with, or leave out --vocab");
  return vocabulary;
}

static void decode(const Options& options) {
  const std::string name = options.positional().empty() ? "-" : options.positional().front();
  refuse_to_replace(options.text("output-file"), files_read(options, {name}, {"vocab"}));
  std::error_code absent;
  if (options.text("input") != "ids" && std::filesystem::is_directory(name, absent)) {
    throw UsageError(printable(name), "is a folder, expected a token stream",
                     "write packed data as a token stream with `qlbin cat`");
  }
  InputFile input(name);
  OutputStream out(options.text("output-file"), false);
  const auto write = [&out](std::string_view text) { out.write(text); };
  if (options.text("input") == "ids") {
    if (!options.has("vocab")) {
      throw UsageError("--input ids", "ids come without a vocabulary", "give one with --vocab");
    }
    const std::string path = options.text("vocab");
    const Vocabulary vocabulary = parse_vocabulary(read_vocabulary_file(path), path);
    Decoder decoder(vocabulary, decode_options(options, vocabulary), write);
    read_text_ids(
        input, vocabulary.info(), decoder, [&out](std::int64_t) { out.flush(); },
        "give the vocabulary that the text was encoded with");
    decoder.finish(std::nullopt);
  } else {
    TokenStreamReader reader(input);
    const Vocabulary vocabulary = stream_vocabulary(options, reader.header(), input.name());
    Decoder decoder(vocabulary, decode_options(options, vocabulary), write);
    copy_stream(reader, decoder, [&out](std::int64_t) { out.flush(); });
    decoder.finish(std::nullopt);
  }
  out.close();
}

// Writes a line for each token. Tokens of type piece are escaped in the vocabulary's file already.
static void print_tokens(const Options& options) {
  const std::string& path = options.positional().front();
  refuse_to_replace(options.text("output-file"), files_read(options, {path}, {}));
  OutputStream out(options.text("output-file"), false);
  const Vocabulary vocabulary = parse_vocabulary(read_vocabulary_file(path), path);
  const bool is_escaped = vocabulary.type() == TokenType::kPiece;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    out.write((is_escaped ? std::string(token) : escaped(token, Among::kLines)) + "\n");
  }
  out.close();
}

int main(int argc, char** argv) {
  return run_tool(qltok_table, argc, argv, [](const Options& options) {
    const std::string& command = options.command().name;
    if (command == "vocab") make_vocabulary(options);
    if (command == "encode") encode(options);
    if (command == "decode") decode(options);
    if (command == "tokens") print_tokens(options);
  });
}
