// Recognizes a file by its first bytes, before any length or count stored in it is used.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ql {

// A reader expects one of these contents, and refuses a file that begins like another content.
enum class Content {
  kText,         // text in UTF-8, or any bytes for a vocabulary of bytes
  kTextIds,      // decimal ids
  kRawIds,       // little-endian ids, also in the files of other programs
  kTokenStream,  // ql-token-stream(5)
  kVocabulary,   // ql-vocabulary(5), or the vocabulary of another program
  kNames,        // a list of file names
  kJson,         // other JSON files of these tools (models, manifests)
  kWeights,      // safetensors
  kAnything,     // the caller asked for the file as it is
};

enum class FileKind {
  kUnknown,      // not recognized; perhaps text
  kGzip,         // can be unpacked
  kZstd,         // can be unpacked
  kTokenStream,  // ql-token-stream(5)
  kOwnJson,      // a vocabulary, manifest, model or preset of these tools
  kJsonText,     // JSON with text in it, perhaps one object per line
  kWeights,      // safetensors
  kLlmc,         // token ids with the header of llm.c
  kOther,        // another recognized kind, which no reader here accepts
};

// This many bytes at the beginning of a file are examined, or all of a shorter file.
constexpr std::size_t kHeadBytes = 4096;

// Returns the kind of the file that begins with `head`.
FileKind file_kind(std::string_view head);

// Says whether more bytes after `head` could change the result of file_kind(). Plain text may be
// kOpen until its first line ends, because a tar archive also begins with text.
enum class Outlook {
  kFinal,  // more bytes cannot change the kind
  kText,   // `head` may be the beginning of an HTML page, JSON or the like
  kOpen,   // `head` may be the beginning of binary data, so a pipe has to deliver more
};
Outlook outlook(std::string_view head);

// Throws a FormatError when the file that begins with `head` is recognized as something other than
// the `expected` content. The error names the file's kind and, if there is a way, how to get the
// content. Text in UTF-16 or UTF-32 is not refused in place of raw ids, weights or a list of names,
// which may have zero bytes, too. `packed_by` is the command that decompresses the file, such as
// "gzip -dc", or "" if the file is not compressed.
void check_kind(std::string_view head, Content expected, const std::string& name,
                const std::string& packed_by = "");

}  // namespace ql
