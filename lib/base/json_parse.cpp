// parse_json: nlohmann_json reads the text event by event (SAX), so that duplicate keys and depth
// are seen before the document object would hide them.
#include <algorithm>
#include <istream>
#include <set>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace ql {

namespace {

constexpr std::size_t kMaximumDepth = 64;

// The events carry no position; this buffer tells how far the lexer has read.
class Text : public std::streambuf {
 public:
  explicit Text(std::string_view text) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
  std::size_t read() const { return static_cast<std::size_t>(gptr() - eback()); }
};

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
// value - invalid literal; last read: 'nul'; expected ..." without name, place and quotation: the
// place is ours to tell, and the quotation may be long or no valid text.
std::string without_place(std::string text) {
  text.erase(0, text.find("] ") + 2);
  if (text.rfind("parse error at ", 0) == 0) text.erase(0, text.find(": ") + 2);
  const std::size_t quotation = text.find("; last read: ");
  if (quotation == std::string::npos) return text;
  const std::size_t expected = text.rfind("; expected ");
  const bool behind = expected != std::string::npos && expected > quotation;
  return text.erase(quotation, behind ? expected - quotation : std::string::npos);
}

// Names in messages stay readable however long the file made them.
std::string shortened(const std::string& name) {
  return name.size() <= 80 ? name : name.substr(0, 77) + "...";
}

// Builds the document from the events and stops at the first one we refuse.
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
      return refuse(fmt::format("the key '{}' stands here twice", shortened(name)));
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
    // Known to be new: no search through the keys, which would make long objects quadratic.
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

// Lines and columns count from 1; the place is that of the last character read.
std::string place_of(std::string_view text, std::size_t read, const std::string& where) {
  const std::string_view before = text.substr(0, read == 0 ? 0 : read - 1);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start = before.rfind('\n') + 1;
  return fmt::format("{}: line {}, column {}", where, line, before.size() - line_start + 1);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  // The lexer takes a NUL byte for the end and would ignore what follows.
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
