// Imports and exports token files of other programs (interop/formats.h describes their layouts).

#include "interop/token_files.h"

#include <map>
#include <set>

#include "base/log.h"
#include "base/process.h"
#include "base/strings.h"

namespace ql::interop {

namespace {

// Sends ids. A new document begins after each eos or, with `eos_first`, at each eos.
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
    // With `eos_first` the eos that begins this document must not be found again.
    send_to(found + 1);
  }
  send_to(end);
}

// Holds "data.bin" and "data.idx" for any of the names "data", "data.bin" and "data.idx".
struct MegatronFiles {
  explicit MegatronFiles(const std::string& name) {
    std::filesystem::path stem = name;
    if (stem.extension() == ".bin" || stem.extension() == ".idx") stem.replace_extension();
    data = stem.string() + ".bin";
    index = stem.string() + ".idx";
    std::error_code unknown;
    if (std::filesystem::is_directory(name, unknown) && !std::filesystem::exists(data, unknown)) {
      throw Error(name, "this is a folder", "name the .bin files in it");
    }
  }
  std::string data, index;
};

// Returns the file that has the ids of `name`, with the one spelling of its folder. The file itself
// may be a link into a store.
std::filesystem::path file_of_ids(const std::string& name, Format format) {
  namespace fs = std::filesystem;
  const fs::path file = format == Format::kMegatron ? MegatronFiles(name).data : name;
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(fs::absolute(file).parent_path(), error);
  return (error ? file.parent_path() : folder) / file.filename();
}

// Returns the names without second names of a Megatron pair, as when a shell expands DIR/*. A pair
// that is given twice by the same name stays twice.
std::vector<std::string> without_second_names(std::vector<std::string> files, Format format) {
  if (format != Format::kMegatron) return files;
  std::map<std::filesystem::path, std::string> endings;
  const auto second = [&](const std::string& name) {
    const std::string ending = std::filesystem::path(name).extension().string();
    return endings.try_emplace(file_of_ids(name, format), ending).first->second != ending;
  };
  files.erase(std::remove_if(files.begin(), files.end(), second), files.end());
  return files;
}

void warn_of_repeated(const std::vector<std::string>& files, Format format) {
  std::set<std::filesystem::path> seen;
  for (const std::string& name : files) {
    if (seen.insert(file_of_ids(name, format)).second) continue;
    log_warning("{} is given again, and its tokens are joined each time", printable(name));
    return;
  }
}

// Finds the ids in a file of llm.c, nanoGPT or u32.
IdRun find_ids(const RandomAccessFile& file, const std::string& name, const ImportRules& rules) {
  const bool llmc = rules.format == Format::kLlmc;
  const std::string head = file.head();
  if (!llmc || file_kind(head) != FileKind::kLlmc) check_kind(head, rules.content, name);
  if (llmc) return read_llmc_header(file, name);
  const int width = rules.format == Format::kU32 ? 4 : 2;
  if (file.size() % width != 0) {
    throw FormatError(name,
                      fmt::format("the file has {}, not a whole number of u{} ids",
                                  counted(file.size(), "byte"), 8 * width),
                      "the file is cut off, or has another format");
  }
  return {0, file.size() / width, {width, false}};
}

bool is_plain(Format format) { return format == Format::kNanogpt || format == Format::kU32; }

// Refuses a file of u16 ids if the vocabulary has more than 65,536 entries. llm.c writes u16 ids
// only for GPT-2's vocabulary, so a larger vocabulary is the wrong one.
void check_llmc_width(const IdRun& run, const std::string& name,
                      const shard::VocabularyInfo& vocabulary) {
  if (run.type.bytes >= vocabulary.bytes_per_id()) return;
  throw FormatError(
      name,
      fmt::format("the header states u16 ids, which cannot name all {} entries of the vocabulary",
                  vocabulary.size),
      "give the vocabulary that the ids were made with (GPT-2's has 50257 entries)");
}

}  // namespace

std::int64_t count_tokens(const std::vector<std::string>& files, const ImportRules& rules) {
  if (rules.format == Format::kNanogpt) check_width(2, rules.vocabulary, kImportWidths);
  std::int64_t tokens = 0;
  for (const std::string& name : without_second_names(files, rules.format)) {
    if (rules.format != Format::kMegatron) {
      const IdRun run = find_ids(RandomAccessFile(name), name, rules);
      if (rules.format == Format::kLlmc) check_llmc_width(run, name, rules.vocabulary);
      tokens += run.tokens;
      continue;
    }
    const MegatronFiles pair(name);
    const RandomAccessFile data(pair.data);
    // If the index and the size of the data agree, the data has ids, whatever the ids look like.
    try {
      MegatronIndex index(pair.index, data.size());
      if (index.type().bytes <= 2 && rules.vocabulary.bytes_per_id() > 2) {
        // This is only a warning, because the vocabulary may have grown since the ids were made.
        // Megatron itself uses wider ids if the vocabulary exceeds u16.
        log_warning(
            "{}: ids of {} bits cannot name all {} entries of the vocabulary; were the ids made "
            "with this vocabulary?",
            pair.index, 8 * index.type().bytes, rules.vocabulary.size);
      }
      for (std::int64_t more = 0; index.next_document(more);) tokens += more;
    } catch (const FormatError&) {
      check_kind(data.head(), Content::kRawIds, pair.data);
      throw;
    }
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
  const std::vector<std::string> named = without_second_names(files, rules.format);
  warn_of_repeated(named, rules.format);
  for (const std::string& name : named) {
    if (rules.format != Format::kMegatron) {
      const RandomAccessFile file(name);
      const IdRun run = find_ids(file, name, rules);
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

namespace {

// Creates the file NAME + `end` in the folder NAME.
std::unique_ptr<NewFile> create(const shard::NewFolder& folder, const std::string& end) {
  return folder.create(folder.path().filename().string() + end);
}

// Writes consecutive ids, for llm.c into files of `file_tokens` ids each (the last may have fewer),
// and for other formats into one file. Creates at least one file.
class IdFiles : public shard::TokenSink {
 public:
  IdFiles(const shard::NewFolder& folder, const ExportOptions& options, std::int64_t tokens,
          int bytes_per_id)
      : folder_(folder), options_(options), tokens_left_(tokens), bytes_per_id_(bytes_per_id) {
    begin_file();
  }
  void write(const TokenId* ids, std::size_t count) override {
    while (count > 0) {
      if (left_ == 0) {
        file_->close();
        begin_file();
      }
      const std::size_t part = std::min(count, static_cast<std::size_t>(left_));
      bytes_.clear();
      shard::append_ids(bytes_, ids, part, bytes_per_id_);
      file_->write(bytes_);
      left_ -= static_cast<std::int64_t>(part);
      ids += part;
      count -= part;
    }
  }
  void finish(const std::optional<shard::TextCounts>& /*counts*/) override { file_->close(); }

 private:
  void begin_file() {
    const bool llmc = options_.format == Format::kLlmc;
    left_ = llmc ? std::min(tokens_left_, options_.file_tokens) : tokens_left_;
    tokens_left_ -= left_;
    file_ = create(folder_, llmc ? fmt::format("_{:06}.bin", files_++) : ".bin");
    if (llmc) file_->write(encode_llmc_header(bytes_per_id_, left_));
  }

  const shard::NewFolder& folder_;
  const ExportOptions& options_;
  std::int64_t tokens_left_;  // tokens of the files that have not begun
  std::int64_t left_ = 0;     // tokens that the current file still takes
  int bytes_per_id_, files_ = 0;
  std::string bytes_;
  std::unique_ptr<NewFile> file_;
};

// Returns the largest size of a vocabulary whose ids fit the format.
std::int64_t largest_vocabulary(Format format) {
  if (format == Format::kNanogpt) return std::int64_t{1} << 16;
  if (format == Format::kMegatron) return std::int64_t{1} << 31;
  return std::int64_t{1} << 32;
}

}  // namespace

void export_tokens(shard::MultiReader& data, const fs::path& folder, const ExportOptions& options,
                   const shard::TokensDone& done) {
  check_range("export_tokens()", "file_tokens", options.file_tokens, {1, INT32_MAX});
  const shard::TokenReader& first = data.folders().front();
  if (first.vocabulary().size > largest_vocabulary(options.format)) {
    throw Error(
        first.name(),
        fmt::format("the vocabulary has {} entries, but the format {} has ids for at most {}",
                    first.vocabulary().size, to_text(options.format),
                    largest_vocabulary(options.format)),
        "choose another format, such as u32");
  }
  const int bytes_per_id = options.format == Format::kU32 ? 4 : first.vocabulary().bytes_per_id();
  shard::NewFolder target(shard::check_empty_target(folder));
  IdFiles files(target, options, data.tokens(), bytes_per_id);
  data.copy({0, data.tokens()}, options.threads, files, done);
  files.finish(std::nullopt);
  if (options.format == Format::kMegatron) {
    const auto index = create(target, ".idx");
    write_megatron_index([&data](const auto& use) { data.for_each_document(use); }, bytes_per_id,
                         *index);
    index->close();
  }
  target.sync();
  check_for_stop();
  // Files may have been put into the folder meanwhile. This second check reports them more clearly
  // than commit() would.
  shard::check_empty_target(target.path());
  target.commit(false);
}

}  // namespace ql::interop
