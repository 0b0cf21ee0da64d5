// Parses and writes JSON with nlohmann_json, makes the parser strict, and rewords its errors.

#include "base/json.h"

#include <cmath>
#include <istream>
#include <set>
#include <streambuf>

#include "base/file.h"
#include "base/file_kind.h"

namespace ql {

namespace {

void refuse_non_finite(const Json& json) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    throw Error("", fmt::format("JSON holds only finite numbers, found {}", json.get<double>()));
  }
  if (json.is_structured()) {
    for (const Json& item : json) refuse_non_finite(item);
  }
}

// Describes a value in an error. A number that the parser takes for a floating-point number may be
// a whole number, such as 2.0, so the description shows the number.
std::string type_name(const Json& json) {
  if (json.is_number_float()) return fmt::format("the number {}", json.dump());
  if (json.is_number()) return "a whole number";
  if (json.is_string()) return "a string";
  if (json.is_boolean()) return "true or false";
  if (json.is_object()) return "an object";
  if (json.is_array()) return "an array";
  return "null";
}

[[noreturn]] void wrong_type(const std::string& where, const char* expected, const Json& found) {
  throw FormatError(where, fmt::format("expected {}, found {}", expected, type_name(found)));
}

// `where` returns the text of the place. It is a function because a list needs the text only for a
// wrong item.
template <typename Where>
std::int64_t whole_number(const Json& value, const Where& where) {
  if (!value.is_number_integer()) wrong_type(where(), "a whole number", value);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    throw FormatError(where(), fmt::format("expected at most {}, found {}", INT64_MAX,
                                           value.get<std::uint64_t>()));
  }
  return value.get<std::int64_t>();
}

}  // namespace

Json read_json(const std::filesystem::path& path) {
  // No JSON file of ours is nearly this large. Without a limit, /dev/zero would fill the memory.
  constexpr std::int64_t kLargest = std::int64_t{256} << 20;
  const std::string text = read_file(path, kLargest);
  check_kind(std::string_view(text).substr(0, kHeadBytes), Content::kJson, path.string());
  return parse_json(text, path.string());
}

std::string dump_json(const Json& json) {
  refuse_non_finite(json);
  try {
    return json.dump(2) + "\n";
  } catch (const Json::type_error& error) {
    throw Error("", fmt::format("cannot write as JSON: {}", error.what()));
  }
}

JsonObject::JsonObject(const Json& json, std::string where)
    : json_(&json), where_(std::move(where)) {
  if (!json.is_object()) wrong_type(where_, "an object", json);
}

bool JsonObject::has(const std::string& key) const { return json_->contains(key); }

const Json& JsonObject::at(const std::string& key) const {
  require({key});
  return *json_->find(key);
}

JsonObject JsonObject::object(const std::string& key) const {
  return {at(key), fmt::format("{}: {}", where_, key)};
}

const Json& JsonObject::typed(const std::string& key, const char* expected,
                              bool (Json::*is_type)() const noexcept) const {
  const Json& value = at(key);
  if (!(value.*is_type)()) wrong_type(fmt::format("{}: {}", where_, key), expected, value);
  return value;
}

std::string JsonObject::text(const std::string& key) const {
  return typed(key, "a string", &Json::is_string).get<std::string>();
}

bool JsonObject::boolean(const std::string& key) const {
  return typed(key, "true or false", &Json::is_boolean).get<bool>();
}

std::int64_t JsonObject::integer(const std::string& key, std::int64_t minimum,
                                 std::int64_t maximum) const {
  const std::string where = fmt::format("{}: {}", where_, key);
  const std::int64_t value = whole_number(at(key), [&]() -> const std::string& { return where; });
  if (value < minimum) {
    throw FormatError(where, fmt::format("expected at least {}, found {}", minimum, value));
  }
  if (value > maximum) {
    throw FormatError(where, fmt::format("expected at most {}, found {}", maximum, value));
  }
  return value;
}

double JsonObject::real(const std::string& key) const {
  const auto number = typed(key, "a number", &Json::is_number).get<double>();
  if (!std::isfinite(number)) {
    throw FormatError(fmt::format("{}: {}", where_, key), "expected a finite number");
  }
  return number;
}

std::vector<std::int64_t> JsonObject::integers(const std::string& key) const {
  std::vector<std::int64_t> values;
  for (const Json& item : typed(key, "an array of whole numbers", &Json::is_array)) {
    values.push_back(
        whole_number(item, [&] { return fmt::format("{}: {}[{}]", where_, key, values.size()); }));
  }
  return values;
}

std::vector<bool> JsonObject::booleans(const std::string& key) const {
  std::vector<bool> values;
  for (const Json& item : typed(key, "an array of booleans", &Json::is_array)) {
    if (!item.is_boolean()) {
      wrong_type(fmt::format("{}: {}[{}]", where_, key, values.size()), "true or false", item);
    }
    values.push_back(item.get<bool>());
  }
  return values;
}

std::vector<std::string> JsonObject::texts(const std::string& key) const {
  std::vector<std::string> values;
  const Json& list = typed(key, "an array of strings", &Json::is_array);
  values.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_string()) {
      wrong_type(fmt::format("{}: {}[{}]", where_, key, values.size()), "a string", item);
    }
    values.push_back(item.get<std::string>());
  }
  return values;
}

void JsonObject::refuse_unknown(const std::vector<std::string>& known) const {
  for (const auto& item : json_->items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    const std::string suggestion = nearest(item.key(), known);
    throw FormatError(where_, fmt::format("unknown key '{}'", item.key()),
                      suggestion.empty() ? "" : fmt::format("did you mean '{}'?", suggestion));
  }
}

void JsonObject::require(const std::vector<std::string>& keys) const {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!has(key)) missing.push_back(fmt::format("'{}'", key));
  }
  if (missing.empty()) return;
  const bool one = missing.size() == 1;
  throw FormatError(where_, fmt::format("the {} {} {} missing", one ? "key" : "keys",
                                        fmt::join(missing, ", "), one ? "is" : "are"));
}

void JsonObject::check_format(const std::string& format, std::int64_t version) const {
  const std::string found = text("format");
  if (found != format) {
    throw FormatError(where_, fmt::format("format is '{}', expected '{}'", found, format));
  }
  const std::int64_t found_version = integer("version");
  if (found_version != version) {
    throw UnknownVersion(
        where_,
        fmt::format("version is {}, but this program reads version {}", found_version, version),
        "use the release that wrote the file");
  }
}

// parse_json() receives the text from nlohmann_json event by event (SAX). So it sees duplicate
// keys, which a finished document would hide, and it can refuse deep nesting early.

namespace {

constexpr std::size_t kMaximumDepth = 64;

// nlohmann_json passes on values without their place in the text. read() returns the number of
// characters read so far.
class Text : public std::streambuf {
 public:
  explicit Text(std::string_view text) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
  std::size_t read() const { return static_cast<std::size_t>(gptr() - eback()); }
};

// Removes the name, the place and the quotation from a text such as
// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
// value - invalid literal; last read: 'nul'; expected ...". The caller states the place, and the
// quotation may be long or invalid text.
std::string without_place(std::string text) {
  text.erase(0, text.find("] ") + 2);
  if (text.rfind("parse error at ", 0) == 0) text.erase(0, text.find(": ") + 2);
  const std::size_t quotation = text.find("; last read: ");
  if (quotation == std::string::npos) return text;
  const std::size_t expected = text.rfind("; expected ");
  const bool followed = expected != std::string::npos && expected > quotation;
  return text.erase(quotation, followed ? expected - quotation : std::string::npos);
}

// Shortens a long name from the file, so that a message stays readable.
std::string shortened(const std::string& name) {
  return name.size() <= 80 ? name : name.substr(0, 77) + "...";
}

// Builds the document from the events and stops at the first event that is refused.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  Json result;
  std::string problem;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return end_object(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      return refuse(fmt::format("the key '{}' appears twice in this object", shortened(name)));
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    return refuse(without_place(error.what()));
  }

 private:
  bool refuse(std::string text) {
    problem = std::move(text);
    return false;
  }
  Json* place(Json&& value) {
    if (open_.empty()) {
      result = std::move(value);
      return &result;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // The key is known to be new. A search for it would take quadratic time in long objects.
    auto& members = parent.get_ref<Json::object_t&>();
    members.Container::emplace_back(key_, std::move(value));
    return &members.Container::back().second;
  }
  bool add(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (open_.size() >= kMaximumDepth) {
      return refuse(fmt::format("nested deeper than {} levels", kMaximumDepth));
    }
    open_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }

  std::vector<Json*> open_;
  std::vector<std::set<std::string>> keys_;
  std::string key_;
};

// Returns the place of the last character read. Lines and columns count from 1.
std::string place_of(std::string_view text, std::size_t read, const std::string& where) {
  const std::string_view before = text.substr(0, read == 0 ? 0 : read - 1);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start = before.rfind('\n') + 1;
  return fmt::format("{}: line {}, column {}", where, line, before.size() - line_start + 1);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  // The lexer takes a NUL byte for the end and would ignore everything after it.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    throw FormatError(place_of(text, at + 1, where), "a NUL byte is not JSON");
  }
  StrictBuilder builder;
  Text buffer(text);
  std::istream stream(&buffer);
  if (!Json::sax_parse(stream, &builder)) {
    throw FormatError(place_of(text, buffer.read(), where), builder.problem);
  }
  return std::move(builder.result);
}

}  // namespace ql
