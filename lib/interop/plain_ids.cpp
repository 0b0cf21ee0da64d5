// Reads and writes ids without a header, as text or as raw bytes.

#include "interop/plain_ids.h"

#include "base/data_input.h"
#include "base/log.h"
#include "base/process.h"
#include "base/strings.h"
#include "interop/formats.h"
#include "shard/shard.h"

namespace ql::interop {

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
