// Recognizes records with named fields, such as JSON lines or a table, at the beginning of a file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ql {

struct Records {
  bool json = false;  // JSON objects; otherwise a table whose first line has the names of columns
  std::string kind;   // for messages, such as "JSON with the keys id, text"
  // Shell commands that write the texts of FILE, which may be "-", to standard output. Both are
  // empty if no field seems to have the text. The second command marks where each text begins, so
  // that qltok encode --document `rule` makes a document of each text, also of several lines.
  std::string command, marking_command, rule;
  // False for an object that may be a vocabulary or another JSON file: a single object, without a
  // long text or a text under a usual name such as "text".
  bool surely_text = false;
  // False if more bytes may change any of these members.
  bool complete = true;
};

// Returns the records that begin at `head`, or nothing. `head` is the beginning of a file, without
// a byte order mark and blanks. `cut_off` becomes true if more bytes after `head` could make it the
// beginning of records.
std::optional<Records> find_records(std::string_view head, bool& cut_off);

}  // namespace ql
