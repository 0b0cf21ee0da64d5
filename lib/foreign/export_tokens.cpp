#include "foreign/export_tokens.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "foreign/llmc_header_internal.h"
#include "foreign/megatron_index_internal.h"
#include "foreign/number_array_internal.h"
#include "shard/id_codec.h"
#include "shard/new_folder_internal.h"
#include "shard/pack_target.h"

namespace ql::foreign {

namespace {

// Creates the file NAME + `end` in the folder NAME.
std::unique_ptr<BufferedFile> create(const shard::NewFolder& folder, const std::string& end) {
  return std::make_unique<BufferedFile>(folder.create(folder.path().filename().string() + end));
}

// Ids behind each other: llm.c's in files of `file_tokens` each, of which the last has fewer, the
// others in one file. At least one file is made.
class IdFiles : public shard::TokenSink {
 public:
  IdFiles(const shard::NewFolder& folder, const ExportOptions& options, std::int64_t tokens,
          int bytes_per_id)
      : folder_(folder), options_(options), tokens_left_(tokens), bytes_per_id_(bytes_per_id) {
    begin_file();
  }
  void begin_document() override {}
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
  std::int64_t tokens_left_;  // of those that are in no file yet
  std::int64_t left_ = 0;     // of those in the file that is written
  int bytes_per_id_, files_ = 0;
  std::string bytes_;
  std::unique_ptr<BufferedFile> file_;
};

// The vocabulary's ids must be below.
std::int64_t largest_vocabulary(Format format) {
  switch (format) {
    case Format::kNanogpt:
      return std::int64_t{1} << 16;
    case Format::kMegatron:
      return std::int64_t{1} << 31;
    case Format::kLlmc:
    case Format::kU32:
      break;
  }
  return std::int64_t{1} << 32;
}

}  // namespace

void export_tokens(shard::JoinedData& data, const fs::path& folder, const ExportOptions& options,
                   const shard::TokensDone& done) {
  const shard::TokenReader& first = data.folders().front();
  if (first.vocabulary().size > largest_vocabulary(options.format)) {
    throw Error(first.name(),
                fmt::format("the ids of a vocabulary with {} entries do not fit, at most {} do",
                            first.vocabulary().size, largest_vocabulary(options.format)),
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
  // A second look, for its message: nobody may have put something of theirs there meanwhile.
  shard::check_empty_target(target.path());
  target.commit(false);
}

}  // namespace ql::foreign
