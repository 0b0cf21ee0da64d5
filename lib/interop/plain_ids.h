// Reads and writes ids without a header, as text or as raw bytes. qlbin(1) describes both forms.
#pragma once

#include <memory>
#include <string>

#include "base/file_kind.h"
#include "base/stream.h"
#include "shard/manifest.h"
#include "shard/token_stream.h"

namespace ql::interop {

// Token ids without a header are text with one line per document, or raw little-endian ids. Neither
// form has an end mark, so a reader cannot notice that the producer died; the token stream has an
// end mark.

// Reads decimal ids separated by whitespace, with one line per document; empty lines are ignored.
// Throws FormatError, with the line number, for anything else and for ids outside the vocabulary.
// The message about an id outside the vocabulary ends with `outside_remedy`. Does not call finish()
// of the sink.
void read_text_ids(
    InputFile& input, const shard::VocabularyInfo& vocabulary, shard::TokenSink& sink,
    const shard::TokensDone& done,
    const char* outside_remedy = "give the vocabulary of these ids, or its size (--vocab-size)");

// Reads ids of 2 or 4 bytes as one document. Throws FormatError for ids outside the vocabulary and
// for an input that ends within an id. Throws UsageError for ids of 2 bytes if the vocabulary has
// more than 65,536 entries. Logs a warning when the ids look like parts of wider ids. Does not call
// finish() of the sink. `content` is kRawIds, or kAnything for a file whose ids happen to look like
// another kind of file.
void read_raw_ids(InputFile& input, int bytes_per_id, const shard::VocabularyInfo& vocabulary,
                  shard::TokenSink& sink, const shard::TokensDone& done,
                  Content content = Content::kRawIds);

// Returns a sink that writes one of four formats. "stream" is the token stream, and "ids" is text
// with one line per document. "u16" and "u32" are raw ids without document boundaries. For "u16",
// throws Error at once if the vocabulary has more than 65,536 entries. Throws UsageError for
// another format.
std::unique_ptr<shard::TokenSink> make_token_writer(const std::string& format, shard::ByteSink sink,
                                                    const shard::StreamHeader& header);

}  // namespace ql::interop
