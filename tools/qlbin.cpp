// qlbin packs token streams into zstd shards with a manifest, and reads, merges and converts them.
#include "base/error.h"
#include "base/log.h"
#include "base/provenance.h"
#include "base/rows.h"
#include "base/stream.h"
#include "base/strings.h"
#include "base/tool.h"
#include "interop/plain_ids.h"
#include "interop/token_files.h"
#include "shard/merge.h"
#include "shard/multi_reader.h"
#include "shard/pack_writer.h"
#include "shard/packed_folder.h"
#include "shard/same_vocabulary.h"
#include "shard/shard.h"
#include "shard/verify.h"
#include "tables.h"
#include "text/token_counter.h"

namespace {

using namespace ql;
using namespace ql::interop;
using namespace ql::shard;

// Returns the options for packing. Sizes and level that are not given keep their defaults.
PackOptions pack_options(const Options& options) {
  PackOptions pack;
  if (options.has("shard-tokens")) pack.shard_tokens = options.integer("shard-tokens");
  if (options.has("frame-tokens")) pack.frame_tokens = options.integer("frame-tokens");
  if (options.has("level")) pack.level = static_cast<int>(options.integer("level"));
  pack.force = options.flag("force");
  pack.threads = threads_of(options);
  return pack;
}

// Holds the vocabulary for ids whose input has none. `text` and `vocabulary` come from the file of
// --vocab. Without --vocab, `info` has only the size of the vocabulary and perhaps its <eos>.
struct GivenVocabulary {
  std::string text;
  std::optional<text::Vocabulary> vocabulary;
  VocabularyInfo info;
};

// Reads --vocab, or --vocab-size and --eos. `input` names the input that needs these options.
// Throws UsageError when --vocab is combined with the others, when neither --vocab nor --vocab-size
// is given, or when the eos is not below the size.
GivenVocabulary given_vocabulary(const Options& options, const std::string& input) {
  GivenVocabulary given;
  if (options.has("vocab")) {
    options.refuse({"vocab-size", "eos"}, "", "--{} does not go with --vocab",
                   "leave --{} out: the value is taken from the vocabulary");
    const std::string path = options.text("vocab");
    given.text = text::read_vocabulary_file(path);
    given.vocabulary = text::parse_vocabulary(given.text, path);
    given.info = given.vocabulary->info();
    return given;
  }
  if (!options.has("vocab-size")) {
    throw UsageError("", fmt::format("{} needs --vocab or --vocab-size", input),
                     "give the vocabulary, or the number of its entries");
  }
  given.info.size = options.integer("vocab-size");
  if (!options.has("eos")) return given;
  const std::int64_t eos = options.integer("eos");
  if (eos >= given.info.size) {
    throw UsageError(
        "", fmt::format("--eos {} is outside the vocabulary of {} entries", eos, given.info.size),
        fmt::format("give an id below {}", given.info.size));
  }
  given.info.eos = static_cast<TokenId>(eos);
  return given;
}

TokensDone shown_by(Progress& progress) {
  return [&progress](std::int64_t tokens) { progress.update(tokens); };
}

// Notes that the text of several documents has no line ends: spm_encode, for example, writes ids a
// line, but no id for the line end.
void note_missing_line_ends(std::int64_t documents, const text::Vocabulary& vocabulary,
                            const TextCounts& counts) {
  if (documents < 2 || counts.lines > 1) return;
  log_info(
      "the text of the {} documents has no line ends, because no id stands for one{}",
      with_thousands(documents),
      vocabulary.type() == text::TokenType::kSentencePiece && vocabulary.eos()
          ? "; if each line of ids is a line of text, add <eos>: spm_encode --extra_options=eos"
          : "");
}

// Packs the ids that read(sink, done) sends. If a vocabulary is given, counts the bytes, words and
// lines for which the ids stand, because the input has no such counts.
void pack_ids(const Options& options, const GivenVocabulary& given, const char* title,
              std::int64_t total,
              const std::function<void(TokenSink& sink, const TokensDone& done)>& read) {
  StreamHeader header;
  header.vocabulary = given.info;
  if (!options.flag("without-vocabulary")) header.vocabulary_text = given.text;
  header.provenance = provenance(configuration_of(options));
  PackWriter writer(options.text("output"), header, pack_options(options));
  std::optional<text::CountedTokens> counted;
  if (given.vocabulary) counted.emplace(*given.vocabulary, writer);
  TokenSink& sink = counted ? static_cast<TokenSink&>(*counted) : writer;
  Progress progress(title, "tokens", total);
  read(sink, shown_by(progress));
  sink.finish(std::nullopt);
  progress.finish();
  if (counted) {
    note_missing_line_ends(writer.manifest().documents, *given.vocabulary, counted->counts());
  }
}

// Throws FormatError if the vocabulary whose text `name` carries is not the one that its header or
// manifest describes: the ids would get other names.
void check_carried(const std::string& name, const VocabularyInfo& described,
                   const std::string& text) {
  if (text.empty()) return;
  const VocabularyInfo carried = text::parse_vocabulary(text, name + ": the vocabulary").info();
  if (carried == described) return;
  throw FormatError(name,
                    fmt::format("the vocabulary in it has {}, but {} are described",
                                describe(carried), describe(described)),
                    "make it again with the vocabulary of its ids");
}

void pack_stream(const Options& options, InputFile& input) {
  options.refuse(
      {"vocab", "vocab-size", "eos"}, "", "--{} does not go with a token stream",
      "leave --{} out: the value is taken from the stream; plain ids need --input ids, u16 or u32");
  TokenStreamReader stream(input);
  StreamHeader header = stream.header();
  check_carried(input.name(), header.vocabulary, header.vocabulary_text);
  header.provenance = lineage(configuration_of(options), header.provenance);
  if (options.flag("without-vocabulary")) header.vocabulary_text.clear();
  PackWriter writer(options.text("output"), header, pack_options(options));
  Progress progress("pack", "tokens");
  copy_stream(stream, writer, shown_by(progress));
  writer.finish(stream.counts());
  progress.finish();
}

void pack_plain_ids(const Options& options, InputFile& input) {
  const std::string format = options.text("input");
  const GivenVocabulary given = given_vocabulary(options, "--input " + format);
  pack_ids(options, given, "pack", 0, [&](TokenSink& sink, const TokensDone& done) {
    if (format == "ids") {
      read_text_ids(input, given.info, sink, done);
    } else {
      read_raw_ids(input, format == "u16" ? 2 : 4, given.info, sink, done,
                   content_of(options, Content::kRawIds));
    }
  });
}

void pack(const Options& options) {
  // The options are checked now, without waiting for the first block of a slow producer.
  const std::string format = options.text("input");
  if (options.flag("raw") && format != "u16" && format != "u32") {
    throw UsageError("", "--raw goes with --input u16 or u32 only", "leave it out");
  }
  check_pack_target(options.text("output"), options.flag("force"));
  InputFile input(options.positional().empty() ? "-" : options.positional().front());
  if (format == "stream") {
    pack_stream(options, input);
  } else {
    pack_plain_ids(options, input);
  }
}

void info(const Options& options) {
  const std::string format = options.text("format");
  TableText table = table_of(options, {"name", "tokens", "documents", "vocabulary_size", "words"});
  std::vector<std::string> parts;
  std::vector<Json> rows;
  for (const std::string& path : options.positional()) {
    const PackedFolder place = find_packed_folder(path);
    const Manifest manifest = read_manifest(place);
    if (format == "text") {
      parts.push_back(summary_text(place.name, manifest));
    } else if (format == "json") {
      parts.push_back(json_line(summary_object(place.name, manifest)));
    } else {
      rows.push_back(summary_row(place.name, manifest));
      table.expect(rows.back());
    }
  }
  for (const Json& row : rows) parts.push_back(table.lines(row));
  print(format == "json" ? fmt::format("[{}]\n", fmt::join(parts, ",\n "))
                         : fmt::format("{}", fmt::join(parts, "")));
}

void verify(const Options& options) {
  OutputStream out("-", false);
  std::int64_t problems = 0, damaged = 0;
  for (const std::string& path : options.positional()) {
    Progress progress("verify", "tokens");
    const auto report = [&](const std::string& problem) { out.write(printable(problem) + "\n"); };
    Verification result = verify_folder(path, report, shown_by(progress), threads_of(options));
    try {
      if (result.problems == 0) {
        const TokenReader reader(path);
        check_carried(path, reader.vocabulary(), reader.vocabulary_text());
      }
    } catch (const Error& error) {
      report(error.what());
      ++result.problems;
    }
    if (result.problems == 0) {
      out.write(fmt::format("{}: good: {}, {}, {}\n", printable(path),
                            counted(result.tokens, "token"), counted(result.documents, "document"),
                            counted(result.shards, "shard")));
    }
    problems += result.problems;
    damaged += result.problems == 0 ? 0 : 1;
    progress.clear();
    out.flush();
  }
  out.close();
  if (problems > 0) {
    throw Error("", fmt::format("problems found: {}, in {} of {} folders", problems, damaged,
                                options.positional().size()));
  }
}

TokenRange chosen_range(const Options& options, const MultiReader& data) {
  if (options.given("range") && options.given("documents")) {
    throw UsageError("", "--range and --documents exclude each other", "give one of them");
  }
  if (options.given("documents")) {
    return data.tokens_of_documents(
        parse_range(options.text("documents"), data.documents(), "documents", "documents"));
  }
  if (options.given("range")) {
    return parse_range(options.text("range"), data.tokens(), "range", "tokens");
  }
  return {0, data.tokens()};
}

void cat(const Options& options) {
  const std::string format = options.text("output");
  OutputStream out(options.text("output-file"), format != "ids");
  MultiReader data(options.positional());
  for (const TokenReader& folder : data.folders()) {
    refuse_to_replace(options.text("output-file"), files_of(folder.place(), folder.manifest()));
  }
  const TokenRange range = chosen_range(options, data);
  // Packed data has counts of its complete text only, so the counts of a part are unknown.
  const bool everything = range.begin == 0 && range.end == data.tokens();
  const std::optional<TextCounts> counts = everything ? data.counts() : std::nullopt;
  const auto sink = make_token_writer(
      format, [&](const void* bytes, std::size_t size) { out.write(bytes, size); },
      data.header(configuration_of(options)));
  Progress progress("cat", "tokens", range.end - range.begin);
  data.copy(range, threads_of(options), *sink, shown_by(progress));
  sink->finish(counts);
  out.close();
}

// Returns the header of the merged data, with the vocabulary's text from --vocab if no part has
// that text.
StreamHeader merged_header(const Options& options, const Json& configuration,
                           const MultiReader& data) {
  StreamHeader header = data.header(configuration);
  if (options.has("vocab")) {
    const std::string path = options.text("vocab");
    std::string text = text::read_vocabulary_file(path);
    if (header.vocabulary.hash.empty()) {
      throw Error(path, "cannot be checked: the data does not record its vocabulary's hash",
                  "leave --vocab out");
    }
    require_same_vocabulary({path, text::parse_vocabulary(text, path).info()},
                            {data.name(), header.vocabulary},
                            "give the vocabulary that the parts were made with");
    if (header.vocabulary_text.empty()) header.vocabulary_text = std::move(text);
  }
  if (options.flag("without-vocabulary")) header.vocabulary_text.clear();
  return header;
}

void merge_anew(const Options& options, const Json& configuration, MultiReader& data) {
  // These two calls throw for data that cannot be merged; at this point nothing has been written.
  const std::optional<TextCounts> counts = data.counts();
  const Json unknown_keys = data.unknown_keys();
  PackWriter writer(options.text("output"), merged_header(options, configuration, data),
                    pack_options(options));
  writer.keep_unknown(unknown_keys);
  Progress progress("merge", "tokens", data.tokens());
  data.copy({0, data.tokens()}, threads_of(options), writer, shown_by(progress));
  writer.finish(counts);
  progress.finish();
}

void merge_shards(const Options& options, const Json& configuration, const MultiReader& data) {
  Progress progress("merge", "tokens", data.tokens());
  const Joined joined =
      merge_folders(data, options.text("output"), merged_header(options, configuration, data),
                    pack_options(options), shown_by(progress));
  progress.finish(fmt::format("shards linked: {}, copied: {}", joined.linked, joined.copied));
}

void merge(const Options& options) {
  if (options.has("vocab")) {
    options.refuse({"without-vocabulary"}, "", "--{} does not go with --vocab",
                   "leave one of the two out");
  }
  check_pack_target(options.text("output"), options.flag("force"));
  const std::vector<std::string> names = input_names(options);
  if (names.empty()) {
    throw UsageError("merge", "expected MANIFEST... or --files-from, found neither",
                     "see 'qlbin merge --help'");
  }
  const Json configuration = configuration_of(options, names);
  MultiReader data(names);
  note_part_order(data);
  if (options.has("shard-tokens") || options.has("frame-tokens") || options.has("level")) {
    merge_anew(options, configuration, data);
  } else {
    merge_shards(options, configuration, data);
  }
}

ImportRules import_rules(const Options& options, const VocabularyInfo& vocabulary) {
  ImportRules rules;
  rules.format = options.choice<Format>("format");
  rules.vocabulary = vocabulary;
  rules.content = content_of(options, Content::kRawIds);
  if (options.flag("raw") && rules.format != Format::kNanogpt && rules.format != Format::kU32) {
    throw UsageError("", "--raw goes with --format nanogpt or u32 only", "leave it out");
  }
  rules.eos_first = options.flag("eos-first");
  if (!rules.eos_first) return rules;
  if (rules.format == Format::kMegatron) {
    throw UsageError("", "--eos-first does not go with --format megatron",
                     "leave --eos-first out: Megatron's index states where documents begin");
  }
  if (!rules.vocabulary.eos) {
    throw UsageError(
        "", "--eos-first needs --eos, or a vocabulary with <eos>",
        options.has("vocab")
            ? "give a vocabulary with <eos>, or --vocab-size and --eos instead of --vocab"
            : "give --eos with the id that begins documents");
  }
  return rules;
}

void import_files(const Options& options) {
  const GivenVocabulary given = given_vocabulary(options, "import");
  const ImportRules rules = import_rules(options, given.info);
  check_pack_target(options.text("output"), options.flag("force"));
  const std::vector<std::string>& files = options.positional();
  // count_tokens() checks all headers and sizes before the first token is packed.
  pack_ids(
      options, given, "import", count_tokens(files, rules),
      [&](TokenSink& sink, const TokensDone& done) { import_tokens(files, rules, sink, done); });
}

void export_folders(const Options& options) {
  ExportOptions rules;
  rules.format = options.choice<Format>("format");
  rules.threads = threads_of(options);
  if (options.given("file-tokens") && rules.format != Format::kLlmc) {
    throw UsageError("", "--file-tokens goes with --format llmc only",
                     "leave it out: in the other formats one file has all tokens");
  }
  if (rules.format == Format::kLlmc) rules.file_tokens = options.integer("file-tokens");
  MultiReader data(options.positional());
  Progress progress("export", "tokens", data.tokens());
  export_tokens(data, options.text("output"), rules, shown_by(progress));
  progress.finish();
}

void run(const Options& options) {
  const std::map<std::string, void (*)(const Options&)> commands{
      {"pack", pack},   {"info", info},           {"verify", verify},        {"cat", cat},
      {"merge", merge}, {"import", import_files}, {"export", export_folders}};
  commands.at(options.command().name)(options);
}

}  // namespace

int main(int argc, char** argv) { return run_tool(qlbin_table, argc, argv, run); }
