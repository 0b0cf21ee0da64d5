#include "shard/import_tokens.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "shard/foreign_ids.h"
#include "shard/llmc_header.h"
#include "shard/megatron_index.h"
#include "shard/raw_file.h"

namespace ql::shard {

namespace {

namespace fs = std::filesystem;

// Sends ids with documents that begin behind each eos, or at it.
class EosSplitter {
 public:
  EosSplitter(const ImportRules& rules, TokenSink& sink)
      : eos_(rules.vocabulary.eos), first_(rules.eos_first), sink_(sink) {}

  void write(const TokenId* ids, std::size_t count) {
    const TokenId* const end = ids + count;
    while (eos_) {
      const TokenId* const found = std::find(ids, end, *eos_);
      if (found == end) break;
      const TokenId* const cut = first_ ? found : found + 1;
      send(ids, cut);
      sink_.begin_document();
      // An eos that begins a document must not be found again.
      ids = found + 1;
      send(cut, ids);
    }
    send(ids, end);
  }

 private:
  void send(const TokenId* begin, const TokenId* end) {
    sink_.write(begin, static_cast<std::size_t>(end - begin));
  }

  std::optional<TokenId> eos_;
  bool first_;
  TokenSink& sink_;
};

// "data.bin" and "data.idx" for each of "data", "data.bin" and "data.idx".
struct MegatronFiles {
  explicit MegatronFiles(const std::string& name) {
    fs::path stem = name;
    if (stem.extension() == ".bin" || stem.extension() == ".idx") stem.replace_extension();
    data = stem.string() + ".bin";
    index = stem.string() + ".idx";
  }
  std::string data, index;
};

std::int64_t count_llmc(const std::string& name) {
  return read_llmc_header(RandomAccessFile(name), name).tokens;
}

std::int64_t count_nanogpt(const std::string& name) {
  const std::int64_t size = RandomAccessFile(name).size();
  if (size % 2 != 0) {
    throw FormatError(name, fmt::format("{} bytes are no whole number of u16 ids", size),
                      "it is cut off, or its ids have another width");
  }
  return size / 2;
}

std::int64_t count_megatron(const std::string& name) {
  const MegatronFiles files(name);
  const std::int64_t size = RandomAccessFile(files.data).size();
  MegatronIndex index(files.index, size);
  for (std::int64_t tokens = 0; index.next_document(tokens);) {
  }
  return size / index.type().bytes;
}

void import_megatron(const std::string& name, const ImportRules& rules, TokenSink& sink,
                     const std::function<void(std::size_t)>& done) {
  const MegatronFiles files(name);
  const RandomAccessFile data(files.data);
  MegatronIndex index(files.index, data.size());
  ForeignIds ids(data, files.data, 0, index.type(), rules.vocabulary.size);
  for (std::int64_t tokens = 0; index.next_document(tokens);) {
    sink.begin_document();
    ids.read(tokens, [&](const TokenId* part, std::size_t count) {
      sink.write(part, count);
      done(count);
    });
  }
}

}  // namespace

std::int64_t count_foreign_tokens(const std::vector<std::string>& files, const ImportRules& rules) {
  std::int64_t tokens = 0;
  for (const std::string& name : files) {
    switch (rules.format) {
      case ForeignFormat::kLlmc:
        tokens += count_llmc(name);
        break;
      case ForeignFormat::kNanogpt:
        tokens += count_nanogpt(name);
        break;
      case ForeignFormat::kMegatron:
        tokens += count_megatron(name);
        break;
    }
  }
  return tokens;
}

void import_tokens(const std::vector<std::string>& files, const ImportRules& rules, TokenSink& sink,
                   const TokensDone& done) {
  EosSplitter splitter(rules, sink);
  std::int64_t tokens = 0;
  const auto count_done = [&](std::size_t count) {
    tokens += static_cast<std::int64_t>(count);
    done(tokens);
  };
  for (const std::string& name : files) {
    if (rules.format == ForeignFormat::kMegatron) {
      import_megatron(name, rules, sink, count_done);
      continue;
    }
    const RandomAccessFile file(name);
    LlmcHeader header;
    header.tokens = file.size() / header.type.bytes;
    const bool llmc = rules.format == ForeignFormat::kLlmc;
    if (llmc) header = read_llmc_header(file, name);
    ForeignIds ids(file, name, llmc ? kLlmcHeaderBytes : 0, header.type, rules.vocabulary.size);
    ids.read(header.tokens, [&](const TokenId* part, std::size_t count) {
      splitter.write(part, count);
      count_done(count);
    });
  }
}

}  // namespace ql::shard
