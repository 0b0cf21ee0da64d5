#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/nearest.h"

namespace ql {

namespace {

void refuse_non_finite(const Json& json) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    throw Error("", "JSON cannot hold the number NaN or infinity");
  }
  if (json.is_structured()) {
    for (const Json& item : json) refuse_non_finite(item);
  }
}

const char* type_name(const Json& json) {
  if (json.is_number_float()) return "a fraction";
  if (json.is_number()) return "a whole number";
  if (json.is_string()) return "a text";
  if (json.is_boolean()) return "true or false";
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  return "null";
}

[[noreturn]] void wrong_type(const std::string& where, const char* expected, const Json& found) {
  throw FormatError(where, fmt::format("expected {}, found {}", expected, type_name(found)));
}

// `where` makes the place's words, which a long list needs for a wrong item alone.
template <typename Where>
std::int64_t whole_number(const Json& value, const Where& where) {
  if (!value.is_number_integer()) wrong_type(where(), "a whole number", value);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    throw FormatError(where(),
                      fmt::format("the number {} is too large", value.get<std::uint64_t>()));
  }
  return value.get<std::int64_t>();
}

}  // namespace

Json read_json(const std::filesystem::path& path) {
  // No file of ours comes near; /dev/zero would fill the memory.
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

namespace {

// Adds an item to those of an object or a list, with its later lines indented. Texts hold no ends
// of lines: JSON writes these as \n.
void add_item(std::string& items, std::string_view item) {
  items += items.empty() ? "\n  " : ",\n  ";
  while (!item.empty() && item.back() == '\n') item.remove_suffix(1);
  for (const char c : item) {
    items += c;
    if (c == '\n') items += "  ";
  }
}

}  // namespace

void JsonObjectText::add(std::string_view key, std::string_view value) {
  std::string item = Json(key).dump();
  item += ": ";
  item += value;
  add_item(items_, item);
}

std::string JsonObjectText::text() const {
  return items_.empty() ? "{}\n" : "{" + items_ + "\n}\n";
}

std::string json_list_text(const std::vector<std::string>& items) {
  std::string all;
  for (const std::string& item : items) add_item(all, item);
  return all.empty() ? "[]\n" : "[" + all + "\n]\n";
}

JsonObject::JsonObject(const Json& json, std::string where)
    : json_(&json), where_(std::move(where)) {
  if (!json.is_object()) wrong_type(where_, "an object", json);
}

bool JsonObject::has(const std::string& key) const { return json_->contains(key); }

const Json& JsonObject::at(const std::string& key) const {
  const auto found = json_->find(key);
  if (found == json_->end()) throw FormatError(where_, fmt::format("the key '{}' is missing", key));
  return *found;
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
  return typed(key, "a text", &Json::is_string).get<std::string>();
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
  for (const Json& item : typed(key, "a list of whole numbers", &Json::is_array)) {
    values.push_back(
        whole_number(item, [&] { return fmt::format("{}: {}[{}]", where_, key, values.size()); }));
  }
  return values;
}

std::vector<bool> JsonObject::booleans(const std::string& key) const {
  std::vector<bool> values;
  for (const Json& item : typed(key, "a list of true and false", &Json::is_array)) {
    if (!item.is_boolean()) {
      wrong_type(fmt::format("{}: {}[{}]", where_, key, values.size()), "true or false", item);
    }
    values.push_back(item.get<bool>());
  }
  return values;
}

std::vector<std::string> JsonObject::texts(const std::string& key) const {
  std::vector<std::string> values;
  const Json& list = typed(key, "a list of texts", &Json::is_array);
  values.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_string()) {
      wrong_type(fmt::format("{}: {}[{}]", where_, key, values.size()), "a text", item);
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

void JsonObject::check_format(const std::string& format, std::int64_t version) const {
  const std::string found = text("format");
  if (found != format) {
    throw FormatError(where_, fmt::format("format is '{}', expected '{}'", found, format));
  }
  const std::int64_t found_version = integer("version");
  if (found_version != version) {
    throw UnknownVersion(
        where_, fmt::format("version is {}, this program reads version {}", found_version, version),
        "use the release that wrote the file");
  }
}

}  // namespace ql
