// Target: token files of other programs, as qlbin import reads them. Modes: 0 a file of llm.c; 1
// ids, which get a header of llm.c; 2 a file of nanoGPT; 3 Megatron's two files: two bytes with the
// length of the index, the index, and the tokens. Mode bit 2: no id is an eos; bit 3: documents
// begin at each eos instead of after it; bit 4: ids of 4 bytes in mode 1.
#include "base/bytes.h"
#include "fuzz/fuzz.h"
#include "interop/formats.h"
#include "interop/token_files.h"
#include "shard/shard.h"
#include "unit/shard_support.h"

namespace ql::fuzz {

namespace {

using interop::Format;
using shard::TokenId;
using shard::test::Documents;
using shard::test::overwrite;

constexpr unsigned kMegatronMode = 3;

interop::ImportRules rules_of(unsigned mode) {
  constexpr Format kFormats[] = {Format::kLlmc, Format::kLlmc, Format::kNanogpt, Format::kMegatron};
  interop::ImportRules rules;
  rules.format = kFormats[mode & 3];
  if (rules.format == Format::kNanogpt && (mode & 16) != 0) rules.format = Format::kU32;
  rules.vocabulary.size = 50000;
  if ((mode & 4) == 0) rules.vocabulary.eos = 0;
  rules.eos_first = (mode & 8) != 0;
  return rules;
}

std::string with_header(std::string_view ids, int bytes_per_id) {
  const std::size_t count = ids.size() / static_cast<std::size_t>(bytes_per_id);
  return interop::encode_llmc_header(bytes_per_id, static_cast<std::int64_t>(count)) +
         std::string(ids.substr(0, count * static_cast<std::size_t>(bytes_per_id)));
}

void put_files(Input input, const test::ScratchFolder& folder) {
  if ((input.mode & 3) == kMegatronMode) {
    std::string length(take(input.bytes, 2));
    length.resize(2, '\0');
    const auto index = load_little_endian<std::uint16_t>(length.data());
    overwrite(folder / "file.idx", std::string(take(input.bytes, index)));
  }
  overwrite(folder / "file.bin", (input.mode & 3) == 1
                                     ? with_header(input.bytes, (input.mode & 16) != 0 ? 4 : 2)
                                     : std::string(input.bytes));
}

Documents import(const fs::path& file, const interop::ImportRules& rules) {
  shard::test::ListSink sink;
  const std::int64_t counted = interop::count_tokens({file.string()}, rules);
  std::int64_t done = 0;
  interop::import_tokens({file.string()}, rules, sink, [&](std::int64_t tokens) { done = tokens; });
  std::int64_t sent = 0;
  for (const auto& document : sink.documents) {
    sent += static_cast<std::int64_t>(document.size());
    for (const TokenId id : document) {
      require(id < rules.vocabulary.size, "ids are in the vocabulary");
    }
  }
  require(sent == counted && done == counted, "as many tokens come as were counted");
  return sink.documents;
}

// An eos ends each document except the last, or begins each except the first, and is nowhere else.
void check_cuts(const Documents& documents, const interop::ImportRules& rules) {
  const std::optional<TokenId> eos = rules.vocabulary.eos;
  require(eos || documents.size() <= 1, "without an eos all is one document");
  for (std::size_t number = 0; number < documents.size(); ++number) {
    const std::vector<TokenId>& document = documents[number];
    const bool at_end_of_file = number == (rules.eos_first ? 0 : documents.size() - 1);
    for (std::size_t i = 0; i < document.size(); ++i) {
      const bool is_cut = rules.eos_first ? i == 0 : i + 1 == document.size();
      const bool is_eos = eos && document[i] == *eos;
      require(is_eos == is_cut || (is_cut && at_end_of_file), "documents are cut at each eos");
    }
  }
}

// Exports and imports again: Megatron's index keeps the documents, too.
void check_again(const Documents& documents, int bytes_per_id, const test::ScratchFolder& folder) {
  std::string ids;
  for (const auto& document : documents) {
    shard::append_ids(ids, document.data(), document.size(), bytes_per_id);
  }
  overwrite(folder / "again.bin", ids);
  fs::remove(folder / "again.idx");
  NewFile index(folder / "again.idx", "again.idx");
  interop::write_megatron_index(
      [&](const auto& use) {
        for (const auto& document : documents) use(static_cast<std::int64_t>(document.size()));
      },
      bytes_per_id, index);
  index.close();
  require(import(folder / "again", rules_of(kMegatronMode)) == documents,
          "what is written again reads the same");
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static const ql::test::ScratchFolder folder;
  const Input input = input_of(data, size);
  const ql::interop::ImportRules rules = rules_of(input.mode);
  put_files(input, folder);
  Documents documents;
  if (!accepted([&] { documents = import(folder / "file.bin", rules); })) return 0;
  ++taken_inputs;
  if (rules.format != ql::interop::Format::kMegatron) check_cuts(documents, rules);
  for (const int bytes_per_id : {2, 4}) check_again(documents, bytes_per_id, folder);
  return 0;
}
