#include "shard/export_tokens.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "shard/id_codec.h"
#include "shard/llmc_header.h"
#include "shard/megatron_index.h"
#include "shard/number_array.h"
#include "shard/pack_target.h"

namespace ql::shard {

namespace {

// What the formats' writers need to make a file.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& folder)
      : path_(prepare_empty_target(folder)), folder_(path_) {}
  // NAME + `end`.
  std::unique_ptr<BufferedFile> create(const std::string& end) const {
    const std::string name = path_.filename().string() + end;
    return std::make_unique<BufferedFile>(folder_.temporary() / name, (path_ / name).string());
  }
  void commit() {
    folder_.sync();
    // A second look, for its message: nobody may have put something of theirs there meanwhile.
    prepare_empty_target(path_);
    folder_.commit(false);
  }

 private:
  fs::path path_;
  AtomicFolder folder_;
};

// Ids behind each other in one file.
class IdsFile : public TokenSink {
 public:
  IdsFile(std::unique_ptr<BufferedFile> file, int bytes_per_id)
      : file_(std::move(file)), bytes_per_id_(bytes_per_id) {}
  void begin_document() override {}
  void write(const TokenId* ids, std::size_t count) override {
    bytes_.clear();
    append_ids(bytes_, ids, count, bytes_per_id_);
    file_->write(bytes_);
  }
  void finish(const std::optional<TextCounts>& /*counts*/) override { file_->close(); }

 private:
  std::unique_ptr<BufferedFile> file_;
  int bytes_per_id_;
  std::string bytes_;
};

// Files of `file_tokens` each, the last of fewer; at least one.
class LlmcFiles : public TokenSink {
 public:
  LlmcFiles(const NewFolder& folder, std::int64_t tokens, std::int64_t file_tokens,
            int bytes_per_id)
      : folder_(folder),
        tokens_left_(tokens),
        file_tokens_(file_tokens),
        bytes_per_id_(bytes_per_id) {
    begin_file();
  }
  void begin_document() override {}
  void write(const TokenId* ids, std::size_t count) override {
    while (count > 0) {
      if (left_ == 0) {
        file_->finish(std::nullopt);
        begin_file();
      }
      const std::size_t part = std::min(count, static_cast<std::size_t>(left_));
      file_->write(ids, part);
      left_ -= static_cast<std::int64_t>(part);
      ids += part;
      count -= part;
    }
  }
  void finish(const std::optional<TextCounts>& counts) override { file_->finish(counts); }

 private:
  void begin_file() {
    left_ = std::min(tokens_left_, file_tokens_);
    tokens_left_ -= left_;
    auto file = folder_.create(fmt::format("_{:06}.bin", files_++));
    file->write(encode_llmc_header(bytes_per_id_, left_));
    file_ = std::make_unique<IdsFile>(std::move(file), bytes_per_id_);
  }

  const NewFolder& folder_;
  std::int64_t tokens_left_;  // of those that are in no file yet
  std::int64_t file_tokens_, left_ = 0;
  int bytes_per_id_, files_ = 0;
  std::unique_ptr<IdsFile> file_;
};

// The vocabulary's ids must be below.
std::int64_t largest_vocabulary(ForeignFormat format) {
  switch (format) {
    case ForeignFormat::kNanogpt:
      return std::int64_t{1} << 16;
    case ForeignFormat::kMegatron:
      return std::int64_t{1} << 31;
    case ForeignFormat::kLlmc:
      break;
  }
  return std::int64_t{1} << 32;
}

std::unique_ptr<TokenSink> make_sink(const NewFolder& folder, const ExportOptions& options,
                                     std::int64_t tokens, int bytes_per_id) {
  if (options.format == ForeignFormat::kLlmc)
    return std::make_unique<LlmcFiles>(folder, tokens, options.file_tokens, bytes_per_id);
  return std::make_unique<IdsFile>(folder.create(".bin"), bytes_per_id);
}

}  // namespace

void export_tokens(JoinedData& data, const fs::path& folder, const ExportOptions& options,
                   const TokensDone& done) {
  const VocabularyInfo& vocabulary = data.folders().front().vocabulary();
  if (vocabulary.size > largest_vocabulary(options.format)) {
    throw Error(data.folders().front().name(),
                fmt::format("the ids of a vocabulary with {} entries do not fit, at most {} do",
                            vocabulary.size, largest_vocabulary(options.format)),
                "choose another format");
  }
  const int bytes_per_id = data.folders().front().manifest().bytes_per_id();
  NewFolder target(folder);
  const auto sink = make_sink(target, options, data.tokens(), bytes_per_id);
  data.copy({0, data.tokens()}, options.threads, *sink, done);
  sink->finish(std::nullopt);
  if (options.format == ForeignFormat::kMegatron) {
    const auto index = target.create(".idx");
    write_megatron_index([&data](const auto& use) { data.for_each_document(use); }, bytes_per_id,
                         *index);
    index->close();
  }
  target.commit();
}

}  // namespace ql::shard
