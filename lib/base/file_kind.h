// Recognizes a file by its first bytes, before any number in it is trusted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ql {

// A reader expects one of these, and refuses a file that begins as something else.
enum class Content {
  kText,         // text in UTF-8, or any bytes for a vocabulary of bytes
  kTextIds,      // decimal ids
  kRawIds,       // little-endian ids, also in the files of other programs
  kTokenStream,  // ql-token-stream(5)
  kVocabulary,   // ql-vocabulary(5), or the vocabulary of another program
  kNames,        // a list of file names
  kJson,         // another JSON file of these tools
  kWeights,      // safetensors
  kAnything,     // the caller asked for the file as it is
};

enum class FileKind {
  kUnknown,      // nothing that is recognized: perhaps text
  kGzip,         // can be unpacked
  kZstd,         // can be unpacked
  kTokenStream,  // ql-token-stream(5)
  kOwnJson,      // a vocabulary, manifest, model or preset of these tools
  kJsonText,     // JSON with text in it, perhaps one object a line
  kWeights,      // safetensors
  kOther,        // any other kind, which no reader here takes
};

// This many first bytes are examined, or all of a shorter file.
constexpr std::size_t kHeadBytes = 4096;

// Returns the kind of the file that begins with `head`.
FileKind file_kind(std::string_view head);

// Says whether more bytes after `head` could change its kind.
enum class Outlook {
  kFinal,  // no: any text from the end of its first line on, unless it begins as those below do
  kText,   // it may become an HTML page, JSON or another kind of text: blank lines, a comment
  kOpen,   // it may become binary, so a pipe has to deliver more
};
Outlook outlook(std::string_view head);

// Throws a FormatError when the file that begins with `head` is not the `expected` content; it
// names the file's kind and says how to get its content. Ids may look like text in another
// encoding, so Content::kRawIds does not refuse such text. `packed_by` is the command that unpacked
// the head, as in "gzip -dc".
void check_kind(std::string_view head, Content expected, const std::string& name,
                const std::string& packed_by = "");

}  // namespace ql
