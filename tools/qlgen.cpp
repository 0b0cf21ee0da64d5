// qlgen handles what needs no tensor, such as --help and errors of the command line. To generate,
// it replaces itself by the program of the same name in libexec. With --text qlgen keeps running
// instead: it encodes the prompt, runs that program, and decodes the generated tokens.
#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/provenance.h"
#include "base/stream.h"
#include "base/strings.h"
#include "base/tool.h"
#include "checkpoint_text.h"
#include "installed.h"
#include "shard/token_stream.h"
#include "tables.h"
#include "text/decoder.h"
#include "text/encoder.h"
#include "text/vocabulary.h"

namespace {

using namespace ql;

std::vector<shard::TokenId> encode(const text::Vocabulary& vocabulary, const std::string& text) {
  if (find_invalid_utf8(text) != std::string_view::npos &&
      vocabulary.type() != text::TokenType::kByte) {
    throw UsageError("--text", "is not valid UTF-8", "convert it with iconv");
  }
  text::EncodeOptions rules;
  rules.eos = usual_eos(vocabulary);
  const text::Encoder encoder(vocabulary, rules);
  text::TextBlock block;
  block.text = text;
  block.place.file = "--text";
  // The prompt's last line has not ended yet.
  block.ends_file = false;
  text::EncodedBlock encoded = encoder.encode(std::move(block));
  if (encoded.counts.unknown > 0) {
    std::vector<std::string> words;
    for (const std::string& word : encoded.unknown_texts) {
      words.push_back(fmt::format("'{}'", word));
    }
    // A list of maximum length may be incomplete, so it ends with dots.
    if (words.size() == text::Unknowns::kMostTexts) words.back() = "...";
    log_warning("--text: the network reads {} in place of text outside the vocabulary: {}",
                vocabulary.token(*vocabulary.unk()), fmt::join(words, ", "));
  }
  return std::move(encoded.ids);
}

// Returns the strings of --until that are not tokens of the vocabulary, as the text of tokens has
// them. Words are always complete tokens, so the program in libexec ends a text of words where a
// string begins.
std::vector<std::string> stop_strings(const text::Vocabulary& vocabulary, const Options& options) {
  std::vector<std::string> strings;
  for (const std::string& typed : options.texts("until")) {
    const std::vector<std::string> names = token_spellings(typed);
    const bool is_token = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return vocabulary.find(name) != text::TokenTable::kNone;
    });
    if (vocabulary.type() == text::TokenType::kWord || is_token || typed == "line" ||
        typed == "document" || typed.find_first_not_of("0123456789") == std::string::npos) {
      continue;
    }
    strings.push_back(names.front());
    if (vocabulary.type() == text::TokenType::kSentencePiece) {
      strings.push_back(with_line_blanks(names.front()));
    }
  }
  return strings;
}

// Writes the prompt and one continuation as one text, for every continuation. Each text begins on a
// new line, and ends before a stop string.
class Texts : public shard::TokenSink {
 public:
  Texts(const text::Vocabulary& vocabulary, const std::vector<shard::TokenId>& prompt,
        std::vector<std::string> stop_strings, OutputStream& out)
      : vocabulary_(vocabulary),
        prompt_(prompt),
        stop_strings_(std::move(stop_strings)),
        out_(out) {
    rules_.line_style = vocabulary.line_style();
  }
  void begin_document() override {
    finish(std::nullopt);
    decoder_.emplace(vocabulary_, rules_, [this](std::string_view text) { print(text); });
    decoder_->begin_document();
    decoder_->write(prompt_.data(), prompt_.size());
    if (!stop_strings_.empty()) stop_.emplace(stop_strings_);
  }
  void write(const shard::TokenId* ids, std::size_t count) override {
    if (!decoder_) return;
    if (!stop_) {
      decoder_->write(ids, count);
      return;
    }
    for (std::size_t i = 0; i < count && !stop_->found(); ++i) hold_back(ids[i]);
  }
  void finish(const std::optional<shard::TextCounts>& counts) override {
    if (stop_ && !stop_->found()) write_settled(SIZE_MAX);
    held_back_.clear();
    stop_.reset();
    settled_ = 0;
    if (decoder_) decoder_->finish(counts);
    decoder_.reset();
    if (last_ != '\n') out_.write("\n");
    last_ = '\n';
  }

 private:
  void print(std::string_view text) {
    out_.write(text);
    if (!text.empty()) last_ = text.back();
  }

  // Writes the next token and those before it, except what may belong to a stop string.
  void hold_back(shard::TokenId id) {
    stop_->put(decoder_->text_of(id));
    held_back_.push_back(id);
    write_settled(stop_->settled());
    if (stop_->found() && stop_->settled() > settled_) {
      decoder_->write_beginning(held_back_.front(), stop_->settled() - settled_);
    }
  }

  // Writes the tokens that end in the first `bytes` of the continuation's text.
  void write_settled(std::size_t bytes) {
    while (!held_back_.empty()) {
      const std::size_t size = decoder_->text_of(held_back_.front()).size();
      if (settled_ + size > bytes) return;
      decoder_->write(&held_back_.front(), 1);
      held_back_.pop_front();
      settled_ += size;
    }
  }

  const text::Vocabulary& vocabulary_;
  const std::vector<shard::TokenId>& prompt_;
  std::vector<std::string> stop_strings_;
  OutputStream& out_;
  std::optional<StopStrings> stop_;       // of the current continuation
  std::deque<shard::TokenId> held_back_;  // its tokens that are not written yet
  std::size_t settled_ = 0;               // the bytes of the tokens that are
  text::DecodeOptions rules_;
  std::optional<text::Decoder> decoder_;
  char last_ = '\n';
};

void go_on_with_text(const Options& options, const std::vector<std::string>& arguments) {
  shard::StreamHeader header;
  const text::Vocabulary vocabulary =
      checkpoint_vocabulary(options.text("model"), header.vocabulary_text,
                            "pipe the prompt from qltok encode and leave --text out");
  header.vocabulary = vocabulary.info();
  header.provenance = provenance(configuration_of(options));
  const std::vector<shard::TokenId> prompt = encode(vocabulary, options.text("text"));
  std::string stream;
  const auto writer = shard::make_stream_writer(
      [&stream](const void* data, std::size_t size) {
        stream.append(static_cast<const char*>(data), size);
      },
      header);
  writer->begin_document();
  writer->write(prompt.data(), prompt.size());
  writer->finish(std::nullopt);

  OutputStream out("-", /*binary=*/false);
  run_filter(libexec_program("qlgen"), arguments, stream, [&](InputFile& output) {
    shard::TokenStreamReader reader(output);
    Texts texts(vocabulary, prompt, stop_strings(vocabulary, options), out);
    // A child process writes the tokens. When a stop is requested, the child ends its stream, and
    // this loop reads the stream to the end.
    shard::TokenStreamReader::Block block;
    while (reader.next(block)) {
      send_tokens(block.ids.data(), block.ids.size(), block.document_starts, texts);
      out.flush();
    }
    texts.finish(std::nullopt);
    out.close();
  });
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(qlgen_table, argc, argv, [argc, argv](const Options& options) {
    check_qlgen(options);
    if (options.has("items")) pipe_items(options, {options.text("model")});
    if (!options.has("text")) exec_program(libexec_program("qlgen"), argv);
    go_on_with_text(options, {argv + 1, argv + argc});
  });
}
