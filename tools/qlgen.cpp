// qlgen handles what needs no tensor: --help, errors of the command line, and the encoding of text.
// To generate, it replaces itself by the program of the same name in libexec.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/rows.h"
#include "base/strings.h"
#include "base/tool.h"
#include "checkpoint_text.h"
#include "installed.h"
#include "tables.h"
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

// Encodes the prompt of --text, and gives it to the program in libexec as its standard input.
void pass_text_on(const Options& options) {
  std::string file;
  const text::Vocabulary vocabulary = checkpoint_vocabulary(
      options.text("model"), file, "pipe the prompt from qltok encode and leave --text out");
  const Json prompt = {{"prompt", encode(vocabulary, options.text("text"))}};
  const std::string records =
      json_line(vocabulary_record(&vocabulary, file, "")) + "\n" + json_line(prompt) + "\n";
  const Descriptor memory(::memfd_create("prompt", MFD_CLOEXEC));
  if (memory < 0) throw SystemError("--text", "pass the prompt on", errno);
  memory.write(records.data(), records.size(), "--text");
  if (::lseek(memory, 0, SEEK_SET) != 0) throw SystemError("--text", "pass the prompt on", errno);
  memory.become_standard_input("--text");
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(qlgen_table, argc, argv, [argv](const Options& options) {
    check_qlgen(options);
    if (options.has("items")) pipe_items(options, {options.text("model")});
    if (options.has("text")) pass_text_on(options);
    exec_program(libexec_program("qlgen"), argv);
  });
}
