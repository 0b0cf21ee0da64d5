// Token ids as text: one line a document, decimal ids with one blank between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/file.h"
#include "shard/token_sink.h"

namespace ql::text {

using shard::TokenId;

class IdsTextSink : public shard::TokenSink {
 public:
  explicit IdsTextSink(OutputStream& out) : out_(out) {}
  void begin_document() override;
  void write(const TokenId* ids, std::size_t count) override;
  // Ends the last line; the counts have no place in this form.
  void finish(const std::optional<shard::TextCounts>& counts) override;

 private:
  OutputStream& out_;
  bool line_empty_ = true;
};

struct IdsTextHandler {
  std::function<void()> begin_document;  // the next id begins a document
  std::function<void(const TokenId* ids, std::size_t count)> write;
};

// Reads what IdsTextSink writes; blanks, tabs and carriage returns may stand in any number, and
// lines without ids are no documents. Throws FormatError that names the line for anything else and
// for ids not below `vocabulary_size`.
void read_ids_text(InputFile& input, std::int64_t vocabulary_size, const IdsTextHandler& handler);

}  // namespace ql::text
