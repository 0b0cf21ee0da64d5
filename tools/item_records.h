// Reads the items that another process encoded, for the programs that score and continue them, and
// the prompt that qlgen encoded.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/stream.h"
#include "base/strings.h"
#include "shard/token_stream.h"
#include "text/vocabulary.h"

// Holds the rules of decoding that vocabulary.json may leave to its SentencePiece model, which the
// programs with LibTorch cannot read, and the style of lines.
struct DecodingRules {
  ql::text::AddedBlanks blanks;
  ql::text::LineStyle line_style = ql::text::LineStyle::kPlain;
  // Holds the texts of tokens for which vocabulary.json does not suffice.
  std::vector<std::pair<ql::shard::TokenId, std::string>> texts;
};

// Reads the records of tools/pipe_items.cpp, and those of tools/qlgen.cpp.
class ItemRecords {
 public:
  // Calls pause() when the writer waits for more items. It does not matter which of the two
  // programs is faster, because batches of items end at a pause. Throws Error for an error of the
  // writer.
  ql::Json next(const std::function<void()>& pause) {
    ql::Json record = read();
    for (; record.contains("wait"); record = read()) pause();
    if (!record.contains("error")) return record;
    pause();
    const auto text = record["error"].get<std::string>();
    if (record["usage"]) throw ql::UsageError("", text);
    throw ql::Error("", text);
  }

  // Returns the vocabulary of the items of a checkpoint, which come next; empty if it has none.
  ql::shard::StreamHeader vocabulary() {
    const ql::Json record = next([] {});
    missing_ = record["missing"];
    const ql::Json& blanks = record["added_blanks"];
    decoding_.blanks = {ql::value_named<ql::text::LeadingBlanks>(blanks["leading"], "--items"),
                        blanks["after_feed"], blanks["after_eos"]};
    decoding_.line_style = ql::value_named<ql::text::LineStyle>(record["line_style"], "--items");
    decoding_.texts =
        record["texts"].get<std::vector<std::pair<ql::shard::TokenId, std::string>>>();
    if (record["vocabulary"].is_null()) return {};
    return {ql::shard::vocabulary_info_from_json(ql::JsonObject(record["vocabulary"], "--items")),
            record["text"],
            {}};
  }

  // Returns the message that says why there is no vocabulary.
  const std::string& missing_vocabulary() const { return missing_; }
  // Returns the rules of the same vocabulary.
  const DecodingRules& decoding() const { return decoding_; }

 private:
  ql::Json read() {
    std::size_t end = 0, searched = begin_;
    while ((end = buffer_.find('\n', searched)) == std::string::npos) {
      buffer_.erase(0, std::exchange(begin_, 0));
      searched = buffer_.size();
      std::array<char, 1 << 16> bytes{};
      const std::size_t size = input_.read(bytes.data(), bytes.size());
      if (size == 0) {
        throw ql::Error("--items", "the process that encodes the items ended early",
                        "the usual reason is that memory ran out");
      }
      buffer_.append(bytes.data(), size);
    }
    ql::Json record = ql::Json::parse(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                      buffer_.begin() + static_cast<std::ptrdiff_t>(end));
    begin_ = end + 1;
    return record;
  }

  ql::InputFile input_{"-"};
  std::string missing_, buffer_;
  DecodingRules decoding_;
  std::size_t begin_ = 0;  // of the next record in buffer_
};
