// Continues prompts. qlgen replaces itself by this program (tools/qlgen.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/stream.h"
#include "base/strings.h"
#include "base/tool.h"
#include "continuations.h"
#include "eval/data_set.h"
#include "eval/units.h"
#include "generate/generator.h"
#include "item_records.h"
#include "machine/device.h"
#include "machine/process_group.h"
#include "machine/threads.h"
#include "net/model_file.h"
#include "shard/same_vocabulary.h"
#include "shard/token_stream.h"
#include "tables.h"
#include "text/decoder.h"
#include "weights/weights.h"

namespace {

using namespace ql;

constexpr const char* kNoPrompt =
    "a prompt is empty, and the vocabulary has no line end to start from";
constexpr const char* kNoPromptRemedy = "give a prompt of one token or more";

// Passes prompts to a generator. Passes the generated tokens to the output, and to the table of
// --log-probabilities if that option is given.
class Prompts : public shard::TokenSink {
 public:
  // `line_end` replaces an empty prompt; it is absent if the vocabulary has no line end.
  Prompts(const Options& options, std::optional<shard::TokenId> line_end,
          generate::Generator& generator, Continuations& output,
          std::optional<OutputStream>& table_file)
      : by_document_(options.text("prompts") == "document"),
        open_(options.flag("open")),
        line_end_(line_end),
        generator_(generator),
        output_(output),
        table_file_(table_file) {}

  void begin_document() override {
    if (by_document_ && has_prompt_) generate();
    pass_on();
    generator_.begin_document();
  }
  void write(const shard::TokenId* ids, std::size_t count) override {
    if (count == 0) return;
    pass_on();
    has_prompt_ = true;
    generator_.put(ids, count - 1);
    last_ = ids[count - 1];
  }
  void finish(const std::optional<shard::TextCounts>& /*counts*/) override {
    if (has_prompt_ || prompt_ == 0) generate();
  }
  // Completes table and output. The table is closed first, so it is complete even if no process
  // reads the output any longer.
  void close() {
    if (table_file_) table_file_->close();
    output_.close();
  }

 private:
  void pass_on() {
    if (last_) generator_.put(&*last_, 1);
    last_.reset();
  }

  void generate() {
    if (open_ && last_ == line_end_) last_.reset();
    pass_on();
    if (generator_.prompt_tokens() == 0) {
      if (!line_end_) {
        throw Error(generator_.name(), kNoPrompt, kNoPromptRemedy);
      }
      generator_.put(&*line_end_, 1);
    }
    generator_.generate([this](const generate::GeneratedToken& token) { put(token); },
                        [this] { output_.flush(); });
    output_.end();
    ++prompt_;
    has_prompt_ = false;
  }

  void put(const generate::GeneratedToken& token) {
    if (token.position == 0) {
      if (token.sample > 0) output_.end();
      output_.begin(prompt_, token.sample);
    }
    output_.put(token);
    if (!table_file_) return;
    table_file_->write(table_.lines({{"prompt", prompt_ + 1},
                                     {"sample", token.sample + 1},
                                     {"position", token.position + 1},
                                     {"id", token.id},
                                     {"log_probability", token.log_probability}}));
  }

  bool by_document_;
  bool open_;  // --open: a line end at the end of a prompt is removed
  std::optional<shard::TokenId> line_end_;
  generate::Generator& generator_;
  Continuations& output_;
  std::optional<OutputStream>& table_file_;  // of --log-probabilities, if given
  TableText table_{"", /*terminal=*/0};
  bool has_prompt_ = false;
  // The latest token of the prompt. It waits here, because --open removes a line end at the end of
  // a prompt.
  std::optional<shard::TokenId> last_;
  std::int64_t prompt_ = 0;
};

net::Lengths lengths_of(const Options& options, net::Lengths lengths) {
  if (options.has("segment")) lengths.segment = options.integer("segment");
  if (options.has("memory")) lengths.memory = options.integer("memory");
  if (options.has("compressed-memory")) {
    lengths.compressed_memory = options.integer("compressed-memory");
  }
  return lengths;
}

bool is_id(const std::string& named) {
  return !named.empty() && named.find_first_not_of("0123456789") == std::string::npos;
}

// Finds tokens by their names on the command line.
struct NamedTokens {
  // Takes an id in digits, or a token as the vocabulary writes it, with or without the escapes of
  // base/strings.h. Throws UsageError if the vocabulary has no such token.
  shard::TokenId find(const char* option, const std::string& named) {
    if (is_id(named)) {
      const std::optional<std::int64_t> id = parse_integer(named);
      if (id && *id < header.vocabulary.size) return static_cast<shard::TokenId>(*id);
      throw UsageError(option,
                       fmt::format("the id {} is outside the vocabulary of {} entries", named,
                                   header.vocabulary.size),
                       fmt::format("give an id from 0 to {}; if {} is a token, write its first "
                                   "digit as \\x3{}: '\\x3{}'",
                                   header.vocabulary.size - 1, named, named.front(), named));
    }
    return require_name(option, named);
  }

  // Does the same, but takes digits for the name of a token, too.
  shard::TokenId require_name(const char* option, const std::string& named) {
    if (const auto id = find_name(option, named)) return *id;
    const std::string near = nearest(named, texts);
    throw UsageError(option, fmt::format("{} is not a token of the vocabulary", in_quotes(named)),
                     !near.empty() ? fmt::format("did you mean {}?", escaped(near))
                     : header.vocabulary.type == "piece"
                         ? "the vocabulary's file lists the tokens"
                         : "qltok encode --output pieces prints the tokens of a text");
  }

  // Returns the token of this name, or nothing if the vocabulary has none.
  std::optional<shard::TokenId> find_name(const char* option, const std::string& named) {
    if (texts.empty()) texts = eval::read_token_texts(header.vocabulary_text);
    if (texts.empty()) {
      throw UsageError(option,
                       fmt::format("{} has no vocabulary in which to find '{}'", name, named),
                       "give a token's id");
    }
    const std::string plain = unescaped(named).value_or(named);
    // A vocabulary of bytes names a byte by its number, as in <0x41>. A vocabulary of pieces
    // contains the byte itself.
    const std::string byte =
        plain.size() == 1 ? byte_token(static_cast<unsigned char>(plain[0])) : plain;
    for (const std::string& text : {plain, named, byte, eval::shown_piece(named)}) {
      const auto found = std::find(texts.begin(), texts.end(), text);
      if (found != texts.end()) return static_cast<shard::TokenId>(found - texts.begin());
    }
    return std::nullopt;
  }

  const char* no_line_end() const {
    return header.vocabulary_text.empty()
               ? "the token stream comes without its vocabulary, so no token is known to end lines"
               : "the vocabulary has no token that ends lines (<eos> or a line feed)";
  }

  const shard::StreamHeader& header;
  const std::string& name;  // of the stream
  eval::TokenTexts texts = {};
};

std::string as_word(const std::string& word) { return " " + word + " "; }

// Returns what decoding needs. For a SentencePiece model, decoding also needs the `rules` that
// ItemRecords has.
text::DecodedTokens decoded_tokens(const shard::StreamHeader& header,
                                   const DecodingRules& rules = {}) {
  const shard::VocabularyInfo& info = header.vocabulary;
  text::DecodedTokens tokens{info.type == "word", eval::read_token_bytes(header.vocabulary_text),
                             info.eos, rules.blanks};
  std::vector<std::string>& texts = tokens.texts;
  if (static_cast<std::int64_t>(texts.size()) != info.size) {
    throw FormatError(
        "the vocabulary",
        fmt::format("has the texts of {} tokens, expected {}", texts.size(), info.size),
        "encode the prompt again, or copy the vocabulary into the checkpoint again");
  }
  if (info.eos) texts.at(*info.eos) = "\n";
  if (info.unk && !tokens.words) texts.at(*info.unk) = kReplacementUtf8;
  for (const auto& [id, text] : rules.texts) texts.at(id) = text;
  return tokens;
}

// Returns the text of each token for StopStrings. A word has blanks around it, so that strings of
// words are found.
std::vector<std::string> texts_to_search(text::DecodedTokens tokens) {
  if (tokens.words) {
    std::transform(tokens.texts.begin(), tokens.texts.end(), tokens.texts.begin(), as_word);
  }
  return std::move(tokens.texts);
}

// Adds a string of --until that is not a token. A line feed stands for <eos>. A vocabulary of words
// finds only complete words. A string without words, or with words that are not tokens, is left out
// if it `may_be_absent`. Otherwise it throws UsageError, as for characters that are not tokens.
void add_stop_string(const std::string& typed, NamedTokens& tokens, bool may_be_absent,
                     generate::GenerationOptions& options) {
  const std::string& type = tokens.header.vocabulary.type;
  std::string string = unescaped(typed).value_or(typed);
  if (type == "word") {
    // Words have one blank between them.
    std::string words;
    for (const std::string& word : split(replaced(string, "\n", " \n "), ' ')) {
      if (word.empty()) continue;
      const auto token =
          word == "\n" ? tokens.header.vocabulary.eos : tokens.find_name("--until", word);
      if (!token) {
        if (may_be_absent) return;
        if (word == "\n") {
          throw UsageError("--until", tokens.no_line_end(),
                           "give a token, or a string without a line feed");
        }
        tokens.require_name("--until", word);
      }
      words += as_word(token == tokens.header.vocabulary.eos ? "\n" : word);
    }
    if (words.empty()) {
      if (may_be_absent) return;
      throw UsageError("--until", "has no word", "give a token or a string of words");
    }
    string = words;
  }
  if (options.token_texts.empty()) {
    options.token_texts = texts_to_search(decoded_tokens(tokens.header));
  }
  for (std::size_t at = 0; type == "char" && !may_be_absent && at < string.size();) {
    const std::string character = string.substr(at, code_point_at(string, at).length);
    const auto& texts = options.token_texts;
    if (std::find(texts.begin(), texts.end(), character) == texts.end()) {
      tokens.require_name("--until", character);
    }
    at += character.size();
  }
  options.stop_strings.push_back(string);
  // A SentencePiece model may have a blank before each line, which decoding removes.
  if (type == "sentencepiece") options.stop_strings.push_back(with_line_blanks(string));
}

// `token_texts` are those of texts_to_search(), if they are known already.
generate::GenerationOptions generation_options(const Options& options, NamedTokens tokens,
                                               std::optional<shard::TokenId> line_end,
                                               const nn::ModelAtLengths& model,
                                               std::vector<std::string> token_texts = {}) {
  generate::GenerationOptions result;
  result.token_texts = std::move(token_texts);
  result.model = options.text("model");
  result.stride =
      options.has("stride") ? options.integer("stride") : generate::usual_stride(model.geometry());
  if (options.has("without")) {
    for (const std::string& name : split(options.text("without"), ',')) {
      result.rules.without.push_back(tokens.find("--without", name));
    }
  }
  result.rules.repetition_penalty = options.real("repetition-penalty");
  result.rules.repetition_window = options.integer("repetition-window");
  result.rules.temperature = options.real("temperature");
  result.rules.top_k = options.integer("top-k");
  result.rules.top_p = options.real("top-p");
  result.rules.min_p = options.real("min-p");
  result.seed = static_cast<std::uint64_t>(options.integer("seed"));
  result.samples = options.integer("samples");
  result.tokens = options.integer("tokens");
  for (const std::string& until : options.texts("until")) {
    if (until.empty()) throw UsageError("--until", "is empty", "give a token or a string");
    if (options.has("items")) {
      add_stop_string(until, tokens, /*may_be_absent=*/true, result);
    } else if (until == "line" || until == "document") {
      if (!line_end) {
        throw UsageError("--until", tokens.no_line_end(),
                         "give a token's id, or leave --until out");
      }
      result.ends.push_back({*line_end, until == "document" ? 2 : 1});
    } else if (is_id(until) || tokens.find_name("--until", until)) {
      result.ends.push_back({tokens.find("--until", until)});
    } else {
      add_stop_string(until, tokens, /*may_be_absent=*/false, result);
    }
  }
  return result;
}

// Continues the contexts of --items with each choice, before it waits for the next line.
void continue_items(const Options& options, const nn::ModelAtLengths& model) {
  ItemRecords records;
  const shard::StreamHeader header = records.vocabulary();
  const std::string folder = options.text("model");
  if (header.vocabulary_text.empty()) throw Error("", records.missing_vocabulary());
  const std::optional<shard::TokenId> line_end =
      eval::line_end_of(header.vocabulary, [&] { return header.vocabulary_text; });
  const text::DecodedTokens tokens = decoded_tokens(header, records.decoding());
  generate::Generator generator(model, options.text("items"),
                                generation_options(options, NamedTokens{header, folder}, line_end,
                                                   model, texts_to_search(tokens)));
  std::string text;
  // The text goes on from the context as it is typed, so it has no padding.
  text::Decoder decoder(tokens, {text::EosRule::kLine, text::LineStyle::kPlain},
                        [&text](std::string_view more) { text += more; });
  OutputStream out("-", /*binary=*/false);
  const auto pause = [&] { out.flush(); };
  for (Json record = records.next(pause); !record.empty(); record = records.next(pause)) {
    const Json& choices = record["choices"];
    for (std::size_t choice = 0; choice < choices.size(); ++choice) {
      auto prompt = record["context"].get<std::vector<shard::TokenId>>();
      for (const shard::TokenId id : choices[choice]["ids"]) prompt.push_back(id);
      if (prompt.empty() && !line_end) throw Error(record["where"], kNoPrompt, kNoPromptRemedy);
      // qleval --items reads the same tokens before the continuation.
      if (line_end) generator.put(&*line_end, 1);
      generator.put(prompt.data(), prompt.size());
      decoder.begin_document();
      decoder.write(prompt.data(), prompt.size());
      text.clear();
      generator.generate([&](const generate::GeneratedToken& token) { decode(token, decoder); },
                         [] {});
      out.write(json_line({{"item", record["number"]},
                           {"id", record["keys"].value("id", Json())},
                           {"choice", choice},
                           {"text", text}}) +
                "\n");
      out.flush();  // a continuation takes much longer than a write
    }
  }
  out.close();
}

// Opens the table of --log-probabilities, before anything is written.
void open_table(const Options& options, std::optional<OutputStream>& file) {
  if (options.has("log-probabilities")) {
    file.emplace(options.text("log-probabilities"), /*binary=*/false, "");
  }
}

// Calls send(), which passes all prompts on. After a signal the output ends properly, after the
// tokens that were generated so far.
void continue_prompts(Prompts& prompts, const std::function<void()>& send) {
  try {
    send();
    prompts.finish(std::nullopt);
  } catch (const Interrupted&) {
    prompts.close();
    throw;
  }
  prompts.close();
}

// Continues the prompt of --text, which qlgen has encoded (tools/qlgen.cpp).
void continue_text(const Options& options, const nn::ModelAtLengths& model) {
  ItemRecords records;
  const shard::StreamHeader header = records.vocabulary();
  const auto prompt = records.next([] {})["prompt"].get<std::vector<shard::TokenId>>();
  const std::optional<shard::TokenId> line_end =
      eval::line_end_of(header.vocabulary, [&] { return header.vocabulary_text; });
  const text::DecodedTokens tokens = decoded_tokens(header, records.decoding());
  generate::Generator generator(model, "--text",
                                generation_options(options, NamedTokens{header, "--text"}, line_end,
                                                   model, texts_to_search(tokens)));
  std::optional<OutputStream> table_file;
  open_table(options, table_file);
  TextOutput output(tokens, records.decoding().line_style, prompt);
  Prompts prompts(options, line_end, generator, output, table_file);
  continue_prompts(prompts, [&] {
    prompts.begin_document();
    prompts.write(prompt.data(), prompt.size());
  });
}

void continue_stream(const Options& options, const nn::ModelAtLengths& model,
                     const shard::VocabularyInfo& trained_with) {
  InputFile input(options.positional().empty() ? "-" : options.positional().front());
  shard::TokenStreamReader stream(input);
  const shard::StreamHeader& header = stream.header();
  shard::require_same_vocabulary({input.name(), header.vocabulary},
                                 {options.text("model"), trained_with},
                                 "encode the prompt with the vocabulary of the training data");
  const std::optional<shard::TokenId> line_end =
      eval::line_end_of(header.vocabulary, [&] { return header.vocabulary_text; });
  const NamedTokens tokens{header, input.name()};
  if (options.flag("open") && !line_end) {
    throw UsageError("--open", tokens.no_line_end(), "leave --open out");
  }
  generate::Generator generator(model, input.name(),
                                generation_options(options, tokens, line_end, model));
  std::optional<OutputStream> table_file;
  open_table(options, table_file);
  TokenOutput output(options, header);
  Prompts prompts(options, line_end, generator, output, table_file);
  continue_prompts(prompts, [&] { copy_stream(stream, prompts, [](std::int64_t) {}); });
}

void generate_text(const Options& options) {
  machine::set_up_threads(static_cast<int>(options.integer("threads")));
  const std::string folder = options.text("model");
  const net::ModelFile description = net::read_model_file(folder);
  const c10::Device device =
      machine::find_device(options.text("device"), machine::ProcessGroup::single());
  const machine::Precision precision = machine::set_up_precision(
      device, options.choice<machine::Precision>("precision"), machine::ProcessGroup::single());
  if (options.text("precision") == "auto") log_info("precision: {}", to_text(precision));
  const nn::Model model = weights::load_model(folder, description.network,
                                              at::TensorOptions(at::kFloat).device(device));
  const nn::ModelAtLengths at_lengths(model, lengths_of(options, model.network().lengths));
  const nn::ModelPrecision in_precision(model, precision);
  if (options.has("items")) {
    continue_items(options, at_lengths);
  } else if (options.has("text")) {
    continue_text(options, at_lengths);
  } else {
    continue_stream(options, at_lengths,
                    recorded_or_size(description.vocabulary, model.network().vocab_size));
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tool(qlgen_table, argc, argv, generate_text); }
