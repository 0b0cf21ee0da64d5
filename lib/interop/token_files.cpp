// Imports and exports token files of other programs (interop/formats.h describes their layouts).
// Reads and writes ids as text or as raw bytes.

#include "interop/token_files.h"

#include <map>
#include <set>

#include "base/data_input.h"
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

namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
constexpr WidthOptions kWidthOptions = {"--input u16", "--input u32"};
// An error message shows at most this many digits of a number, which may be as long as its file.
constexpr std::size_t kMostShownDigits = 100;

// Reads ids as text piece by piece, because lines may be longer than memory.
class TextIdReader {
 public:
  TextIdReader(const std::string& name, const shard::VocabularyInfo& vocabulary,
               shard::TokenSink& sink, const char* outside_remedy)
      : name_(name), vocabulary_(vocabulary), sink_(sink), outside_remedy_(outside_remedy) {}

  void read(DataInput& input, const shard::TokensDone& done) {
    std::string buffer(kBufferBytes, '\0');
    while (const std::size_t got = input.read(buffer.data(), buffer.size())) {
      check_for_stop();
      for (const char letter : std::string_view(buffer.data(), got)) take(letter);
      write();
      done(tokens_);
    }
    check_for_stop();
    end_number();
    write();
    if (empty_lines_ > 0) {
      log_info("{}: {} without ids passed over", name_, counted(empty_lines_, "line"));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const {
    throw FormatError(fmt::format("{}: line {}", name_, line_), what, remedy);
  }

  [[noreturn]] void fail_outside(const std::string& id) const {
    fail(fmt::format("id {} is outside the vocabulary of {} entries", id, vocabulary_.size),
         outside_remedy_);
  }

  void take(char letter) {
    if (letter >= '0' && letter <= '9') {
      in_number_ = true;
      take_digit(letter);
    } else if (letter == ' ' || letter == '\t' || letter == '\r') {
      end_number();
    } else if (letter == '\n') {
      end_number();
      write();
      ++line_;
      if (document_begins_) ++empty_lines_;
      document_begins_ = true;
    } else {
      const auto byte = static_cast<unsigned char>(letter);
      fail(byte > ' ' && byte < 127 ? fmt::format("'{}' is not a digit", letter)
                                    : fmt::format("byte {:#04x} is not a digit", byte),
           "expected decimal ids separated by blanks, one line per document");
    }
  }

  // A number of almost 64 bits or more is outside any vocabulary. Its digits are kept for the error
  // message.
  void take_digit(char digit) {
    constexpr std::int64_t kLargest = INT64_MAX / 20;
    if (number_ <= kLargest) {
      number_ = number_ * 10 + (digit - '0');
      return;
    }
    if (long_number_.empty()) long_number_ = fmt::format("{}", number_);
    if (long_number_.size() == kMostShownDigits) fail_outside(long_number_ + "...");
    long_number_ += digit;
  }

  void end_number() {
    if (!in_number_) return;
    if (!long_number_.empty()) fail_outside(long_number_);
    if (number_ >= vocabulary_.size) fail_outside(fmt::format("{}", number_));
    if (document_begins_) sink_.begin_document();
    document_begins_ = false;
    ids_.push_back(static_cast<shard::TokenId>(number_));
    number_ = 0;
    in_number_ = false;
  }

  void write() {
    sink_.write(ids_.data(), ids_.size());
    tokens_ += static_cast<std::int64_t>(ids_.size());
    ids_.clear();
  }

  const std::string& name_;
  const shard::VocabularyInfo& vocabulary_;
  shard::TokenSink& sink_;
  const char* outside_remedy_;
  std::vector<shard::TokenId> ids_;
  std::int64_t line_ = 1, number_ = 0, tokens_ = 0, empty_lines_ = 0;
  bool in_number_ = false, document_begins_ = true;
  std::string long_number_;  // the digits of a number that number_ cannot hold
};

}  // namespace

void read_text_ids(InputFile& file, const shard::VocabularyInfo& vocabulary, shard::TokenSink& sink,
                   const shard::TokensDone& done, const char* outside_remedy) {
  DataInput input(file, Content::kTextIds);
  TextIdReader(input.name(), vocabulary, sink, outside_remedy).read(input, done);
}

void read_raw_ids(InputFile& file, int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                  shard::TokenSink& sink, const shard::TokensDone& done, Content content) {
  DataInput input(file, content);
  check_width(bytes_per_id, vocabulary, kWidthOptions);
  std::string buffer(kBufferBytes, '\0');
  std::vector<shard::TokenId> ids;
  std::int64_t tokens = 0;
  while (const std::size_t got = read_fully(input, buffer.data(), buffer.size())) {
    check_for_stop();
    if (got % static_cast<std::size_t>(bytes_per_id) != 0) {
      const std::int64_t complete = tokens + static_cast<std::int64_t>(got) / bytes_per_id;
      throw FormatError(input.name(),
                        fmt::format("the input ends within an id of {} bytes, after {}",
                                    bytes_per_id, counted(complete, "token")),
                        "the input is cut off, or has another format");
    }
    shard::decode_ids(buffer.data(), got, bytes_per_id, ids);
    const std::string problem = shard::outside_id(ids, tokens, vocabulary.size);
    if (!problem.empty()) {
      throw FormatError(
          input.name(), problem,
          outside_id_advice({buffer.data(), got}, bytes_per_id, vocabulary.size, kWidthOptions));
    }
    if (tokens == 0) {
      warn_of_wider_ids(input.name(), bytes_per_id, ids.data(), ids.size(), kWidthOptions);
    }
    sink.write(ids.data(), ids.size());
    tokens += static_cast<std::int64_t>(ids.size());
    done(tokens);
  }
  check_for_stop();
}

namespace {

class TextIdWriter : public shard::TokenSink {
 public:
  explicit TextIdWriter(shard::ByteSink sink) : sink_(std::move(sink)) {}
  void begin_document() override { line_begins_ = true; }
  void write(const shard::TokenId* ids, std::size_t count) override {
    if (count == 0) return;
    std::string text;
    text.reserve(count * 6);
    for (std::size_t i = 0; i < count; ++i) {
      if (!line_begins_) text += ' ';
      if (line_begins_ && !empty_) text += '\n';
      line_begins_ = empty_ = false;
      const fmt::format_int digits(ids[i]);
      text.append(digits.data(), digits.size());
    }
    sink_(text.data(), text.size());
  }
  void finish(const std::optional<shard::TextCounts>& /*counts*/) override {
    if (!empty_) sink_("\n", 1);
  }

 private:
  shard::ByteSink sink_;
  bool line_begins_ = true, empty_ = true;
};

class RawIdWriter : public shard::TokenSink {
 public:
  RawIdWriter(shard::ByteSink sink, int bytes_per_id, const shard::VocabularyInfo& vocabulary)
      : sink_(std::move(sink)), bytes_per_id_(bytes_per_id) {
    if (bytes_per_id >= vocabulary.bytes_per_id()) return;
    throw Error(
        "", fmt::format("ids of a vocabulary with {} entries do not fit into u16", vocabulary.size),
        "give --output u32");
  }
  void write(const shard::TokenId* ids, std::size_t count) override {
    if (shard::kIdsAreBytes && bytes_per_id_ == sizeof(shard::TokenId)) {
      sink_(ids, count * sizeof(shard::TokenId));
      return;
    }
    bytes_.clear();
    shard::append_ids(bytes_, ids, count, bytes_per_id_);
    sink_(bytes_.data(), bytes_.size());
  }

 private:
  shard::ByteSink sink_;
  int bytes_per_id_;
  std::string bytes_;
};

}  // namespace

std::unique_ptr<shard::TokenSink> make_token_writer(const std::string& format, shard::ByteSink sink,
                                                    const shard::StreamHeader& header) {
  if (format == "stream") return shard::make_stream_writer(std::move(sink), header);
  if (format == "ids") return std::make_unique<TextIdWriter>(std::move(sink));
  if (format != "u16" && format != "u32") {
    throw UsageError(
        "", fmt::format("expected the format stream, ids, u16 or u32, found '{}'", format));
  }
  return std::make_unique<RawIdWriter>(std::move(sink), format == "u16" ? 2 : 4, header.vocabulary);
}

}  // namespace ql::interop
