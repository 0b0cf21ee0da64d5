#include "text/ids_text.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/signals.h"
#include "text/words.h"

namespace ql::text {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} * 1024;

// Digits arrive one by one, so that a number may span two reads.
class IdsTextReader {
 public:
  IdsTextReader(InputFile& input, std::int64_t vocabulary_size, const IdsTextHandler& handler)
      : input_(input), vocabulary_size_(vocabulary_size), handler_(handler) {}

  void read() {
    std::string buffer(kReadBytes, '\0');
    while (const std::size_t got = input_.read(buffer.data(), buffer.size())) {
      check_for_stop();
      for (std::size_t i = 0; i < got; ++i) add(buffer[i]);
      pass_on();
    }
    end_number();
    pass_on();
  }

 private:
  void add(char c) {
    if (c >= '0' && c <= '9') {
      number_ = number_ * 10 + (c - '0');
      inside_number_ = true;
      if (number_ >= vocabulary_size_) {
        fail(fmt::format("token id {}{}: the vocabulary has {} entries", number_,
                         number_ < 100'000'000 ? "" : "...", vocabulary_size_),
             "give the vocabulary that the text was encoded with");
      }
    } else if (is_blank(c)) {
      end_number();
      if (c == '\n') end_line();
    } else {
      fail(fmt::format("byte 0x{:02X} where a decimal token id is expected",
                       static_cast<unsigned char>(c)),
           "is it a token stream? then leave out --input ids");
    }
  }

  void end_number() {
    if (!inside_number_) return;
    if (line_empty_) handler_.begin_document();
    line_empty_ = false;
    ids_.push_back(static_cast<TokenId>(number_));
    number_ = 0;
    inside_number_ = false;
  }

  void end_line() {
    pass_on();
    line_empty_ = true;
    ++line_;
  }

  void pass_on() {
    if (!ids_.empty()) handler_.write(ids_.data(), ids_.size());
    ids_.clear();
  }

  [[noreturn]] void fail(const std::string& what, const std::string& cure) const {
    throw FormatError(fmt::format("{}: line {}", input_.name(), line_), what, cure);
  }

  InputFile& input_;
  std::int64_t vocabulary_size_;
  const IdsTextHandler& handler_;
  std::int64_t line_ = 1;
  std::int64_t number_ = 0;
  bool inside_number_ = false, line_empty_ = true;
  std::vector<TokenId> ids_;
};

}  // namespace

void IdsTextSink::begin_document() {
  if (!line_empty_) out_.write("\n");
  line_empty_ = true;
}

void IdsTextSink::write(const TokenId* ids, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!line_empty_) out_.write(" ");
    const fmt::format_int digits(ids[i]);
    out_.write(digits.data(), digits.size());
    line_empty_ = false;
  }
}

void IdsTextSink::finish(const std::optional<shard::TextCounts>&) { begin_document(); }

void read_ids_text(InputFile& input, std::int64_t vocabulary_size, const IdsTextHandler& handler) {
  IdsTextReader(input, vocabulary_size, handler).read();
}

}  // namespace ql::text
