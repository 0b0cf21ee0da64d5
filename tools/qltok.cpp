// qltok: text to token stream, and back. See qltok(1).
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>

#include "base/common_options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/provenance.h"
#include "base/tool.h"
#include "foreign/plain_ids.h"
#include "shard/token_stream_format.h"
#include "tables.h"
#include "text/decoder.h"
#include "text/encode_files.h"
#include "text/vocabulary_builder.h"

namespace {

using ql::Options;
using ql::text::Vocabulary;

// The value of a choice; the option table has refused other names.
template <typename Value>
Value chosen(const Options& options, const char* name, const std::map<std::string, Value>& values) {
  return values.at(options.text(name));
}

ql::text::InvalidText invalid_text(const Options& options) {
  using ql::text::InvalidText;
  return chosen<InvalidText>(options, "invalid",
                             {{"error", InvalidText::kError}, {"replace", InvalidText::kReplace}});
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return fmt::format(
      "{:.2f} %",
      whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void warn_of_reserved(std::int64_t count) {
  if (count == 0) return;
  ql::log_warning(
      "words <eos> in the text: {}; they become <unk>, because <eos> stands for line ends",
      ql::with_thousands(count));
}

// A token stream carries no more.
std::string read_vocabulary_text(const std::string& path) {
  return ql::read_file(path, static_cast<std::int64_t>(ql::shard::kLargestVocabularyText));
}

// The place of the output is no part of how it was made.
ql::Json configuration(const Options& options) {
  ql::Json json = ql::configuration_of(options);
  json.erase("output");
  return json;
}

void make_vocabulary(const Options& options) {
  using ql::text::Presence;
  const std::map<std::string, Presence> presence = {
      {"auto", Presence::kAuto}, {"always", Presence::kAlways}, {"never", Presence::kNever}};
  ql::text::VocabularyRules rules;
  rules.type = *ql::find_named<ql::text::TokenType>(options.text("type"));
  rules.lowercase = options.flag("lowercase");
  rules.min_count = options.integer("min-count");
  if (options.has("max-size")) rules.max_size = options.integer("max-size");
  rules.eos = chosen(options, "eos", presence);
  rules.unk = chosen(options, "unk", presence);
  rules.invalid = invalid_text(options);

  // Opened first: a folder that is not there should not cost the time of counting.
  std::optional<ql::AtomicFile> file;
  if (options.text("output") != "-") file.emplace(options.text("output"));
  const auto built =
      ql::text::build_vocabulary(options.positional(), rules, ql::threads_of(options));
  const std::string text = built.vocabulary.to_text(ql::provenance(configuration(options)));
  if (file) {
    file->write(text);
    file->commit();
  } else {
    ql::print(text);
  }
  ql::log_info("lines: {}, tokens: {}{}", ql::with_thousands(built.lines),
               ql::with_thousands(built.tokens),
               built.types == 0 ? "" : ", distinct: " + ql::with_thousands(built.types));
  ql::log_info("entries: {}; outside the vocabulary: {} of {} tokens ({})",
               ql::with_thousands(built.vocabulary.size()), ql::with_thousands(built.unknown),
               ql::with_thousands(built.tokens), percent(built.unknown, built.tokens));
  warn_of_reserved(built.reserved);
}

ql::text::EncodeOptions encode_options(const Options& options, const Vocabulary& vocabulary) {
  using ql::text::EosRule;
  using ql::text::UnknownRule;
  ql::text::EncodeOptions rules;
  rules.eos = chosen<EosRule>(options, "eos",
                              {{"auto", vocabulary.eos() ? EosRule::kLine : EosRule::kNone},
                               {"none", EosRule::kNone},
                               {"line", EosRule::kLine},
                               {"double", EosRule::kDouble}});
  rules.documents = ql::text::DocumentRule(options.text("document"));
  rules.invalid = invalid_text(options);
  rules.unknown = chosen<UnknownRule>(options, "unknown",
                                      {{"unk", UnknownRule::kUnk}, {"error", UnknownRule::kError}});
  return rules;
}

void report(const ql::text::EncodeTotals& totals, const Vocabulary& vocabulary) {
  const bool words = vocabulary.type() == ql::text::TokenType::kWord;
  const std::int64_t all = words ? totals.counts.words : totals.tokens;
  ql::log_info("lines: {}, words: {}, tokens: {}, documents: {}",
               ql::with_thousands(totals.counts.lines), ql::with_thousands(totals.counts.words),
               ql::with_thousands(totals.tokens), ql::with_thousands(totals.documents));
  ql::log_info("outside the vocabulary: {} of {} {} ({})",
               ql::with_thousands(totals.counts.unknown), ql::with_thousands(all),
               words ? "words" : "tokens", percent(totals.counts.unknown, all));
  const std::int64_t in_text = totals.unk - totals.counts.unknown;
  if (in_text > 0) {
    ql::log_info("<unk> in the text itself: {} ({})", ql::with_thousands(in_text),
                 percent(in_text, all));
  }
  warn_of_reserved(totals.reserved);
}

void encode(const Options& options) {
  const std::string format = options.text("output");
  ql::OutputStream out(format != "ids");
  const std::string path = options.text("vocab");
  ql::shard::StreamHeader header;
  header.vocabulary_text = read_vocabulary_text(path);
  const Vocabulary vocabulary = ql::text::parse_vocabulary(header.vocabulary_text, path);
  const ql::text::Encoder encoder(vocabulary, encode_options(options, vocabulary));
  header.vocabulary = vocabulary.info();
  header.provenance = ql::provenance(configuration(options));
  const auto sink = ql::foreign::make_token_writer(
      format, [&out](const void* data, std::size_t size) { out.write(data, size); }, header);
  const auto totals =
      encode_files(options.positional(), encoder, ql::threads_of(options), *sink, [&] {
        sink->flush();
        out.flush();
      });
  sink->finish(totals.counts);
  out.close();
  report(totals, vocabulary);
}

ql::text::DecodeOptions decode_options(const Options& options, const Vocabulary& vocabulary) {
  ql::text::DecodeOptions rules;
  rules.eos =
      options.text("eos") == "double" ? ql::text::EosRule::kDouble : ql::text::EosRule::kLine;
  rules.line_style = ql::find_named<ql::text::LineStyle>(options.text("line-style"))
                         .value_or(vocabulary.line_style());
  return rules;
}

// The vocabulary of --vocab or of the stream; both must be the same where both are there.
Vocabulary stream_vocabulary(const Options& options, const ql::shard::StreamHeader& header,
                             const std::string& stream) {
  const ql::shard::VocabularyInfo& info = header.vocabulary;
  const bool given = options.has("vocab");
  if (!given && header.vocabulary_text.empty()) {
    throw ql::Error(stream, "the token stream brings no vocabulary", "give one with --vocab");
  }
  const std::string where = given ? options.text("vocab") : stream + ": vocabulary";
  Vocabulary vocabulary = ql::text::parse_vocabulary(
      given ? read_vocabulary_text(where) : header.vocabulary_text, where);
  if (!info.hash.empty() && info.hash != vocabulary.hash()) {
    throw ql::Error(where,
                    fmt::format("the vocabulary has the hash {}, but {} was made with {}",
                                vocabulary.hash(), stream, info.hash),
                    "give the vocabulary that the text was encoded with, or leave out --vocab");
  }
  return vocabulary;
}

void decode(const Options& options) {
  ql::InputFile input(options.positional().empty() ? "-" : options.positional().front());
  ql::OutputStream out(false);
  const auto write = [&out](std::string_view text) { out.write(text); };
  if (options.text("input") == "ids") {
    if (!options.has("vocab")) {
      throw ql::UsageError("--input ids", "ids bring no vocabulary", "give one with --vocab");
    }
    const std::string path = options.text("vocab");
    const Vocabulary vocabulary = ql::text::parse_vocabulary(read_vocabulary_text(path), path);
    ql::text::Decoder decoder(vocabulary, decode_options(options, vocabulary), write);
    ql::foreign::read_text_ids(input, vocabulary.info(), decoder, [](std::int64_t) {},
                               {"give the vocabulary that the text was encoded with",
                                "is it a token stream? then leave out --input ids"});
    decoder.finish(std::nullopt);
  } else {
    ql::shard::TokenStreamReader reader(input);
    const Vocabulary vocabulary = stream_vocabulary(options, reader.header(), input.name());
    ql::text::Decoder decoder(vocabulary, decode_options(options, vocabulary), write);
    copy_stream(reader, decoder, [&out](std::int64_t) { out.flush(); });
    decoder.finish(std::nullopt);
  }
  out.close();
}

}  // namespace

int main(int argc, char** argv) {
  return ql::run_tool(qltok_table, argc, argv, [](const Options& options) {
    const std::string& command = options.command().name;
    if (command == "vocab") make_vocabulary(options);
    if (command == "encode") encode(options);
    if (command == "decode") decode(options);
  });
}
