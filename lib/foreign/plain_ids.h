// Token ids without a header: text with one line per document, or raw little-endian numbers. They
// do not say where they end, so that a producer that died goes unnoticed: the token stream is for
// that.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "base/file_kind.h"
#include "shard/token_info.h"
#include "shard/token_sink.h"
#include "shard/token_stream.h"

namespace ql::foreign {

// Messages of read_text_ids() give this advice.
struct TextIdCures {
  const char* foreign_id = "give the vocabulary of these ids, or its size (--vocab-size)";
  const char* no_digit = "expected decimal ids separated by blanks, one line per document";
};

// Decimal ids separated by blanks, one line per document; empty lines are passed over. FormatError
// with the line for anything else and for ids outside the vocabulary. Does not finish the sink.
void read_text_ids(InputFile& input, const shard::VocabularyInfo& vocabulary,
                   shard::TokenSink& sink, const shard::TokensDone& done,
                   const TextIdCures& cures = {});

// Ids of 2 or 4 bytes, all one document. FormatError for ids outside the vocabulary and for an
// input that ends within an id; UsageError for 2 bytes and a vocabulary of more than 65,536
// entries. Logs a warning when the ids look like wider ones. Does not finish the sink. `content` is
// kRawIds, or kAnything for a file whose ids happen to look like another kind of file.
void read_raw_ids(InputFile& input, int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                  shard::TokenSink& sink, const shard::TokensDone& done,
                  Content content = Content::kRawIds);

// Makes the writer of a `format` that tools name: "stream"; "ids", which read_text_ids() reads;
// "u16" or "u32", which read_raw_ids() reads: ids only, no document boundaries. Throws Error at
// once when the vocabulary's ids do not fit into so many bytes.
std::unique_ptr<shard::TokenSink> make_token_writer(const std::string& format, shard::ByteSink sink,
                                                    const shard::StreamHeader& header);

}  // namespace ql::foreign
