// Reads the names of fields in the first bytes of JSON or of a table, and finds the field that has
// the text.

#include "base/records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace ql {
namespace {

using namespace std::string_view_literals;

// Public data sets have these names for the field with the text.
constexpr std::array kTextNames = {"text"sv,     "content"sv,  "raw_content"sv, "body"sv,
                                   "document"sv, "article"sv,  "passage"sv,     "story"sv,
                                   "abstract"sv, "sentence"sv, "review"sv};

struct Field {
  std::string name;
  bool is_text = false;    // the value is a string
  bool cut_off = false;    // the bytes end within this string
  std::size_t length = 0;  // of the string, in bytes
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool has_text_name(const Field& field) {
  return std::find(kTextNames.begin(), kTextNames.end(), lower(field.name)) != kTextNames.end();
}

// Returns true if the name needs no escapes in the quotes of a shell, of Python or of jq.
bool is_plain(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == ' ' || c == '.';
  });
}

// Returns the field that has the text: one with a usual name, or else the longest string.
const Field* text_field(const std::vector<Field>& fields) {
  const Field* found = nullptr;
  const auto rank = [](const Field& field) {
    return std::tuple(has_text_name(field), field.cut_off, field.length);
  };
  for (const Field& field : fields) {
    if (!field.is_text || !is_plain(field.name)) continue;
    if (found == nullptr || rank(field) > rank(*found)) found = &field;
  }
  return found;
}

std::string list_of_names(const std::vector<Field>& fields, bool complete) {
  constexpr std::size_t kMost = 12;
  std::vector<std::string> names;
  for (const Field& field : fields) {
    if (field.name.empty()) continue;  // the index of a table
    if (names.size() < kMost) names.push_back(printable(field.name));
  }
  if (!complete || fields.size() > kMost) names.emplace_back("...");
  return fmt::format("{}", fmt::join(names, ", "));
}

// Walks through JSON that may end anywhere.
class JsonHead {
 public:
  explicit JsonHead(std::string_view text) : rest_(text) {}

  // Passes the character if it comes next, after blanks.
  bool pass(char wanted) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool at_end() {
    skip_blanks();
    return rest_.empty();
  }
  // Passes a string, and returns its content as JSON spells it. Returns nothing if no string comes
  // next or if the text ends within it; then at_end() is true, and `read_length` is what it has.
  std::optional<std::string> pass_string() {
    if (!pass('"')) return std::nullopt;
    for (read_length = 0; read_length < rest_.size(); ++read_length) {
      if (static_cast<unsigned char>(rest_[read_length]) < ' ') return std::nullopt;
      if (rest_[read_length] == '"') {
        std::string content(rest_.substr(0, read_length));
        rest_.remove_prefix(read_length + 1);
        return content;
      }
      if (rest_[read_length] == '\\') ++read_length;
    }
    rest_ = {};
    return std::nullopt;
  }
  // Passes everything up to the comma or bracket that ends a value, outside of inner values.
  void pass_value() {
    for (std::size_t depth = 0; !at_end();) {
      const char c = rest_.front();
      if (c == '"') {
        if (!pass_string() && !rest_.empty()) return;
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) return;
      depth += c == '{' || c == '[' ? 1 : 0;
      depth -= c == '}' || c == ']' ? 1 : 0;
      rest_.remove_prefix(1);
    }
  }
  // Returns true if a string comes next.
  bool at_string() {
    skip_blanks();
    return !rest_.empty() && rest_.front() == '"';
  }

  std::size_t read_length = 0;

 private:
  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

// Reads the fields of an object after its opening brace. Returns true if the object is complete.
// Stops at text that is not JSON.
bool read_fields(JsonHead& json, std::vector<Field>& fields) {
  for (;;) {
    if (json.pass('}')) return true;
    if (!fields.empty() && !json.pass(',')) return false;
    const auto key = json.pass_string();
    if (!key || !json.pass(':')) return false;
    Field field{*key, json.at_string()};
    if (field.is_text) {
      field.cut_off = !json.pass_string() && json.at_end();
      field.length = json.read_length;
    } else {
      json.pass_value();
    }
    fields.push_back(field);
    if (field.cut_off) return false;
  }
}

std::optional<Records> find_json(std::string_view head, bool& cut_off) {
  JsonHead json(head);
  const bool array = json.pass('[');
  if (!json.pass('{')) {
    cut_off = cut_off || (array && json.at_end());
    return std::nullopt;
  }
  std::vector<Field> fields;
  const bool ended = read_fields(json, fields);
  if (fields.empty()) {
    cut_off = cut_off || json.at_end();
    return std::nullopt;
  }
  Records records;
  records.json = true;
  records.complete = !json.at_end();
  records.kind = fmt::format("JSON with the key{} {}", fields.size() == 1 && ended ? "" : "s",
                             list_of_names(fields, ended));
  const Field* const text = text_field(fields);
  const bool several = ended && (array || json.pass('{'));
  // A vocabulary may have ids as names, and be cut off within any token.
  const bool ids = std::all_of(fields.begin(), fields.end(), [](const Field& field) {
    return field.name.find_first_not_of("0123456789") == std::string::npos;
  });
  records.surely_text =
      array || several || (text != nullptr && (has_text_name(*text) || (text->cut_off && !ids)));
  if (text == nullptr) return records;
  const bool word = text->name.find_first_of("-. ") == std::string::npos &&
                    std::isdigit(static_cast<unsigned char>(text->name.front())) == 0;
  const std::string path = fmt::format(
      "{}{}", array ? ".[]" : "",
      word ? "." + text->name : fmt::format(R"({}["{}"])", array ? "" : ".", text->name));
  // The text of each record follows a line with only a form feed, which words do not contain.
  records.command = fmt::format("jq -r '{} | strings' FILE", path);
  records.marking_command = fmt::format(R"(jq -r '{} | strings | "\f", .' FILE)", path);
  records.rule = R"('^\f$')";
  return records;
}

// Returns the columns if the line has their names, between tabs or commas, and one of the names is
// usual for a text.
std::vector<Field> columns_of(std::string_view line, char separator) {
  std::vector<Field> columns;
  bool any_text = false;
  for (std::string name : split(line, separator)) {
    if (name.size() > 2 && name.front() == '"' && name.back() == '"') {
      name = name.substr(1, name.size() - 2);
    }
    // A list of counts has a number in the place of a name.
    if (!name.empty() && name.find_first_not_of("0123456789.") == std::string::npos) return {};
    // The first name of a table with an index may be empty.
    const bool index = name.empty() && columns.empty();
    if (!index && (!is_plain(name) || name.front() == ' ' || name.back() == ' ')) return {};
    columns.push_back({name});
    columns.back().is_text = has_text_name(columns.back());
    any_text = any_text || columns.back().is_text;
  }
  return any_text && columns.size() > 1 ? columns : std::vector<Field>();
}

std::optional<Records> find_table(std::string_view head) {
  const std::size_t feed = head.find('\n');
  if (feed == std::string_view::npos) return std::nullopt;
  std::string_view line = head.substr(0, feed);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const bool tabs = line.find('\t') != std::string_view::npos;
  const std::vector<Field> columns = columns_of(line, tabs ? '\t' : ',');
  if (columns.empty()) return std::nullopt;
  Records records;
  records.surely_text = true;
  records.kind = fmt::format("a table ({}) with the columns {}", tabs ? "TSV" : "CSV",
                             list_of_names(columns, true));
  const Field& text = *text_field(columns);
  if (tabs) {
    const auto place = &text - columns.data() + 1;
    records.command = fmt::format("tail -n +2 FILE | cut -f {}", place);
    records.marking_command = records.command;
    records.rule = "line";
    return records;
  }
  const auto command = [&](std::string_view mark) {
    return fmt::format(
        "LC_ALL=C.UTF-8 python3 -c 'import csv, fileinput; csv.field_size_limit(1 << 30); "
        "[print({}row[\"{}\"]) "
        "for row in csv.DictReader((line.lstrip(\"\\ufeff\") for line in fileinput.input()), "
        "restval=\"\")]' FILE",
        mark, text.name);
  };
  records.command = command("");
  records.marking_command = command(R"("\f\n" + )");
  records.rule = R"('^\f$')";
  return records;
}

}  // namespace

std::optional<Records> find_records(std::string_view head, bool& cut_off) {
  if (auto records = find_json(head, cut_off)) return records;
  return find_table(head);
}

}  // namespace ql
