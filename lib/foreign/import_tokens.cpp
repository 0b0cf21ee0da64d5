#include "foreign/import_tokens.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_kind.h"
#include "base/log.h"
#include "foreign/id_width_internal.h"
#include "foreign/llmc_header_internal.h"
#include "foreign/megatron_index_internal.h"

namespace ql::foreign {

namespace {

// Sends ids with documents that begin behind each eos, or at it.
void send_split(const TokenId* ids, std::size_t count, const ImportRules& rules,
                shard::TokenSink& sink) {
  const TokenId* const end = ids + count;
  const auto send_to = [&](const TokenId* cut) {
    sink.write(ids, static_cast<std::size_t>(cut - ids));
    ids = cut;
  };
  while (rules.vocabulary.eos) {
    const TokenId* const found = std::find(ids, end, *rules.vocabulary.eos);
    if (found == end) break;
    send_to(rules.eos_first ? found : found + 1);
    sink.begin_document();
    // An eos that begins a document must not be found again.
    send_to(found + 1);
  }
  send_to(end);
}

// "data.bin" and "data.idx" for each of "data", "data.bin" and "data.idx".
struct MegatronFiles {
  explicit MegatronFiles(const std::string& name) {
    std::filesystem::path stem = name;
    if (stem.extension() == ".bin" || stem.extension() == ".idx") stem.replace_extension();
    data = stem.string() + ".bin";
    index = stem.string() + ".idx";
  }
  std::string data, index;
};

// The ids of a file of llm.c or nanoGPT.
IdRun find_ids(const RandomAccessFile& file, const std::string& name, Format format) {
  check_kind(file.head(), Content::kRawIds, name);
  if (format == Format::kLlmc) return read_llmc_header(file, name);
  const int width = format == Format::kU32 ? 4 : 2;
  if (file.size() % width != 0) {
    throw FormatError(
        name, fmt::format("{} bytes are no whole number of u{} ids", file.size(), 8 * width),
        "it is cut off, or its ids have another width");
  }
  return {0, file.size() / width, {width, false}};
}

bool is_plain(Format format) { return format == Format::kNanogpt || format == Format::kU32; }

// llm.c's header for u16 ids is that of GPT-2's.
void check_llmc_width(const IdRun& run, const std::string& name,
                      const shard::VocabularyInfo& vocabulary) {
  if (run.type.bytes > 2 || !exceeds_u16(vocabulary)) return;
  throw FormatError(
      name,
      fmt::format("u16 ids by its header, which cannot name the {} entries of the vocabulary",
                  vocabulary.size),
      "give the vocabulary that they were made with (GPT-2's has 50257 entries)");
}

}  // namespace

std::int64_t count_tokens(const std::vector<std::string>& files, const ImportRules& rules) {
  if (rules.format == Format::kNanogpt) check_width(2, rules.vocabulary, kImportWidths);
  std::int64_t tokens = 0;
  for (const std::string& name : files) {
    if (rules.format != Format::kMegatron) {
      const IdRun run = find_ids(RandomAccessFile(name), name, rules.format);
      if (rules.format == Format::kLlmc) check_llmc_width(run, name, rules.vocabulary);
      tokens += run.tokens;
      continue;
    }
    const MegatronFiles pair(name);
    const RandomAccessFile data(pair.data);
    check_kind(data.head(), Content::kRawIds, pair.data);
    MegatronIndex index(pair.index, data.size());
    if (index.type().bytes <= 2 && exceeds_u16(rules.vocabulary)) {
      // The vocabulary may have grown since; Megatron takes wider ids for one that u16 cannot name.
      log_warning(
          "{}: ids of {} bits cannot name all {} entries of the vocabulary; were they made with "
          "it?",
          pair.index, 8 * index.type().bytes, rules.vocabulary.size);
    }
    for (std::int64_t more = 0; index.next_document(more);) tokens += more;
  }
  return tokens;
}

void import_tokens(const std::vector<std::string>& files, const ImportRules& rules,
                   shard::TokenSink& sink, const shard::TokensDone& done) {
  std::int64_t tokens = 0;
  const auto count_done = [&](std::size_t count) {
    tokens += static_cast<std::int64_t>(count);
    done(tokens);
  };
  for (const std::string& name : files) {
    if (rules.format != Format::kMegatron) {
      const RandomAccessFile file(name);
      const IdRun run = find_ids(file, name, rules.format);
      IdReader ids(file, name, run.offset, run.type, rules.vocabulary.size, is_plain(rules.format));
      ids.read(run.tokens, [&](const TokenId* part, std::size_t count) {
        send_split(part, count, rules, sink);
        count_done(count);
      });
      continue;
    }
    const MegatronFiles pair(name);
    const RandomAccessFile data(pair.data);
    MegatronIndex index(pair.index, data.size());
    IdReader ids(data, pair.data, 0, index.type(), rules.vocabulary.size, false);
    for (std::int64_t more = 0; index.next_document(more);) {
      sink.begin_document();
      ids.read(more, [&](const TokenId* part, std::size_t count) {
        sink.write(part, count);
        count_done(count);
      });
    }
  }
}

}  // namespace ql::foreign
