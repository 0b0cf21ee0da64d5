#include <vector>

#include "base/data_input.h"
#include "base/error.h"
#include "base/signals.h"
#include "foreign/id_width_internal.h"
#include "foreign/plain_ids.h"
#include "shard/id_codec.h"

namespace ql::foreign {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
constexpr WidthOptions kWidthOptions = {"--input u16", "--input u32"};
// No id has so many; a file of nothing but digits must not fill the memory or the message.
constexpr std::size_t kMostShownDigits = 100;

// A parser fed piece by piece: lines may be longer than memory.
class TextIdParser {
 public:
  TextIdParser(const std::string& name, const shard::VocabularyInfo& vocabulary,
               shard::TokenSink& sink, const TextIdCures& cures)
      : name_(name), vocabulary_(vocabulary), sink_(sink), cures_(cures) {}

  void feed(const char* text, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) take(text[i]);
    write();
  }
  void finish() {
    end_number();
    write();
  }
  std::int64_t tokens() const { return tokens_; }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& cure) const {
    throw FormatError(fmt::format("{}: line {}", name_, line_), what, cure);
  }

  [[noreturn]] void fail_foreign(const std::string& id) const {
    fail(fmt::format("id {} is outside the vocabulary of {} entries", id, vocabulary_.size),
         cures_.foreign_id);
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
      document_begins_ = true;
    } else {
      const auto byte = static_cast<unsigned char>(letter);
      fail(byte > ' ' && byte < 127 ? fmt::format("'{}' is no digit", letter)
                                    : fmt::format("byte {:#04x} is no digit", byte),
           cures_.no_digit);
    }
  }

  // A number that 64 bits may not hold is foreign anyway, and is read on for its message.
  void take_digit(char digit) {
    constexpr std::int64_t kLargest = INT64_MAX / 20;
    if (number_ <= kLargest) {
      number_ = number_ * 10 + (digit - '0');
      return;
    }
    if (long_number_.empty()) long_number_ = fmt::format("{}", number_);
    if (long_number_.size() == kMostShownDigits) fail_foreign(long_number_ + "...");
    long_number_ += digit;
  }

  void end_number() {
    if (!in_number_) return;
    if (!long_number_.empty()) fail_foreign(long_number_);
    if (number_ >= vocabulary_.size) fail_foreign(fmt::format("{}", number_));
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
  const TextIdCures& cures_;
  std::vector<shard::TokenId> ids_;
  std::int64_t line_ = 1, number_ = 0, tokens_ = 0;
  bool in_number_ = false, document_begins_ = true;
  std::string long_number_;  // the digits of a number that number_ cannot hold
};

}  // namespace

void read_text_ids(InputFile& file, const shard::VocabularyInfo& vocabulary, shard::TokenSink& sink,
                   const shard::TokensDone& done, const TextIdCures& cures) {
  DataInput input(file, Content::kTextIds);
  TextIdParser parser(input.name(), vocabulary, sink, cures);
  std::string buffer(kBufferBytes, '\0');
  while (const std::size_t got = input.read(buffer.data(), buffer.size())) {
    check_for_stop();
    parser.feed(buffer.data(), got);
    done(parser.tokens());
  }
  check_for_stop();
  parser.finish();
}

void read_raw_ids(InputFile& file, int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                  shard::TokenSink& sink, const shard::TokensDone& done, Content content) {
  DataInput input(file, content);
  check_width(bytes_per_id, vocabulary, kWidthOptions);
  std::string buffer(kBufferBytes, '\0');
  std::vector<shard::TokenId> ids;
  std::int64_t tokens = 0;
  while (const std::size_t got = input.read_fully(buffer.data(), buffer.size())) {
    check_for_stop();
    if (got % static_cast<std::size_t>(bytes_per_id) != 0) {
      throw FormatError(input.name(),
                        fmt::format("the input ends within an id of {} bytes, after {} tokens",
                                    bytes_per_id, tokens + static_cast<std::int64_t>(ids.size())),
                        "it is cut off, or its ids have another width");
    }
    shard::decode_ids(buffer.data(), got, bytes_per_id, ids);
    const std::string problem = shard::foreign_id(ids, tokens, vocabulary.size);
    if (!problem.empty()) {
      throw FormatError(
          input.name(), problem,
          foreign_id_advice({buffer.data(), got}, bytes_per_id, vocabulary.size, kWidthOptions));
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

}  // namespace ql::foreign
