// Reads strict JSON, and maps JSON objects to structs: one table of keys serves for reading,
// writing and range checks.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace ql {

// JSON is read strictly. Duplicate keys, -1 as an unsigned number and 1.9 as an integer are errors
// here, although nlohmann_json accepts them silently. Every error names the file, and the key or
// the line.

// Keys keep the order of insertion, so that a file that is read and written again does not change.
using Json = nlohmann::ordered_json;

// Parses `text`. Throws FormatError at "where: line L, column C", also for duplicate keys, trailing
// text, invalid UTF-8 and more than 64 levels of nesting. `where` is the file's name.
Json parse_json(std::string_view text, const std::string& where);
Json read_json(const std::filesystem::path& path);

// Returns the text of `json`, indented by two spaces, with a newline at the end.
std::string dump_json(const Json& json);

// Gives typed access to one object. `where` is "file" or "file: key". Getters throw FormatError,
// with the place, for a missing key, a wrong type or a number out of range.
class JsonObject {
 public:
  JsonObject(const Json& json, std::string where);
  bool has(const std::string& key) const;
  const Json& at(const std::string& key) const;
  JsonObject object(const std::string& key) const;
  std::string text(const std::string& key) const;
  bool boolean(const std::string& key) const;
  std::int64_t integer(const std::string& key, std::int64_t minimum = INT64_MIN,
                       std::int64_t maximum = INT64_MAX) const;
  double real(const std::string& key) const;
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<bool> booleans(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  // Throws FormatError for a key that is not in `known`, and names the nearest known one.
  void refuse_unknown(const std::vector<std::string>& known) const;
  // Throws FormatError unless the object has all of `keys`, and names all that are missing.
  void require(const std::vector<std::string>& keys) const;
  // Checks "format" and "version", the first two keys of all our JSON files. Throws FormatError
  // unless "format" is `format`, and UnknownVersion unless "version" is `version`.
  void check_format(const std::string& format, std::int64_t version) const;
  const Json& json() const { return *json_; }
  const std::string& where() const { return where_; }

 private:
  const Json& typed(const std::string& key, const char* expected,
                    bool (Json::*is_type)() const noexcept) const;

  const Json* json_;
  std::string where_;
};

// A table with a row for each key maps a struct to a JSON object. Reading, writing, the checks of
// ranges and the list of keys use this table, which stands next to the struct:
//
//   constexpr auto keys_of(const Best&) {
//     return [](auto& best, const auto& row) {
//       row("step", best.step, {0}, kRequired);
//       row("loss", best.loss, {}, kRequired);
//     };
//   }
//
// A member is an std::int64_t, double, bool or std::string, or an std::vector of one of these types
// except double. It may also be an enumeration with names (base/strings.h), a struct with keys of
// its own, or an std::optional of any such type. The key of an optional without a value is absent.

// A number, or each item of a list, must lie in this range; both ends are allowed. An error states
// the range as "must be" and `text`. If `text` is "", the error states the two ends.
struct Range {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr Range(double at_least = -kInfinity, double at_most = kInfinity, const char* text = "")
      : least(at_least), most(at_most), words(text) {}
  double least, most;
  const char* words;
};

inline constexpr Range kBelowOne(0, 0x1.fffffffffffffp-1, "at least 0 and less than 1");

// A row of keys_of() may have a sum of these marks.
constexpr unsigned kRequired = 1;         // an object without the key is refused
constexpr unsigned kMayChange = 2;        // a resumed run may have another value
constexpr unsigned kMayChangeByName = 4;  // as kMayChange, if the command line names the key

// Returns true when the value is allowed. Otherwise adds a conflict such as "batch is 0, must be at
// least 1".
template <typename Number>
bool check_range(const std::string& where, const std::string& name, Number value,
                 const Range& range, Conflicts& conflicts) {
  if (static_cast<double>(value) >= range.least && static_cast<double>(value) <= range.most) {
    return true;
  }
  std::string allowed = range.words;
  if (allowed.empty()) {
    allowed = range.most == Range::kInfinity ? fmt::format("at least {}", range.least)
                                             : fmt::format("{} to {}", range.least, range.most);
  }
  conflicts.add(where, fmt::format("{} is {}, must be {}", name, value, allowed));
  return false;
}
// Throws the conflict as ConfigError.
template <typename Number>
void check_range(const std::string& where, const std::string& name, Number value,
                 const Range& range) {
  Conflicts conflicts;
  check_range(where, name, value, range, conflicts);
  conflicts.raise();
}

template <typename Value>
void check_value(const std::string& where, const char* key, const Value& value, const Range& range,
                 Conflicts& conflicts) {
  if constexpr (std::is_arithmetic_v<Value>) {
    check_range(where, key, value, range, conflicts);
  }
}
// Adds a conflict only for the first item outside the range, because a list from a file may be
// long.
inline void check_value(const std::string& where, const char* key,
                        const std::vector<std::int64_t>& list, const Range& range,
                        Conflicts& conflicts) {
  for (const std::int64_t item : list) {
    if (!check_range(where, fmt::format("an item of {}", key), item, range, conflicts)) return;
  }
}
template <typename Value>
void check_value(const std::string& where, const char* key, const std::optional<Value>& value,
                 const Range& range, Conflicts& conflicts) {
  if (value) check_value(where, key, *value, range, conflicts);
}

// Returns a callable that checks one member at a time. Both arguments must outlive the callable.
inline auto key_checker(const std::string& where, Conflicts& conflicts) {
  return [&](const char* key, const auto& value, const Range& range = {}, unsigned = 0) {
    check_value(where, key, value, range, conflicts);
  };
}

// Adds a conflict for every member outside its range.
template <typename Struct>
void check_keys(const std::string& where, const Struct& all, Conflicts& conflicts) {
  keys_of(all)(all, key_checker(where, conflicts));
}

// Returns the keys that have all of the `wanted` marks, in the order in which they are written.
template <typename Struct>
std::vector<std::string> key_names(unsigned wanted = 0) {
  std::vector<std::string> names;
  const Struct all{};
  keys_of(all)(all, [&](const char* key, const auto&, const Range& = {}, unsigned marks = 0) {
    if ((marks & wanted) == wanted) names.emplace_back(key);
  });
  return names;
}

template <typename Struct>
Struct read_keys(const JsonObject& json);

template <typename Value>
void read_value(const JsonObject& json, const char* key, Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    value = json.boolean(key);
  } else if constexpr (std::is_same_v<Value, std::int64_t>) {
    value = json.integer(key);
  } else if constexpr (std::is_same_v<Value, double>) {
    value = json.real(key);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    value = json.text(key);
  } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    value = json.integers(key);
  } else if constexpr (std::is_same_v<Value, std::vector<bool>>) {
    value = json.booleans(key);
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    value = json.texts(key);
  } else if constexpr (std::is_enum_v<Value>) {
    value = value_named<Value>(json.text(key), json.where() + ": " + key);
  } else {
    value = read_keys<Value>(json.object(key));
  }
}
template <typename Value>
void read_value(const JsonObject& json, const char* key, std::optional<Value>& value) {
  read_value(json, key, value.emplace());
}

// Returns a callable that reads the member of one key. Other keys of `json` are ignored, so objects
// of other programs can be read, too. `json` must outlive the callable.
inline auto key_reader(const JsonObject& json) {
  return [&json](const char* key, auto& value, const Range& = {}, unsigned marks = 0) {
    if ((marks & kRequired) != 0 || json.has(key)) read_value(json, key, value);
  };
}

// Returns the object as a struct. A member whose key is absent keeps its default. Throws
// FormatError for missing kRequired keys, unknown keys, wrong types and unknown enumeration names.
// Adds a conflict for each value outside its range. If a member is itself a struct, the conflicts
// of its values are not added, but thrown as ConfigError.
template <typename Struct>
Struct read_keys(const JsonObject& json, Conflicts& conflicts) {
  json.refuse_unknown(key_names<Struct>());
  json.require(key_names<Struct>(kRequired));
  Struct all;
  keys_of(all)(all, key_reader(json));
  check_keys(json.where(), all, conflicts);
  return all;
}
// Throws conflicts as ConfigError.
template <typename Struct>
Struct read_keys(const JsonObject& json) {
  Conflicts conflicts;
  Struct all = read_keys<Struct>(json, conflicts);
  conflicts.raise();
  return all;
}

template <typename Struct>
Json write_keys(const Struct& all);

template <typename Value>
void write_value(Json& object, const char* key, const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    object[key] = to_text(value);
  } else if constexpr (std::is_constructible_v<Json, const Value&>) {
    object[key] = value;
  } else {
    object[key] = write_keys(value);
  }
}
template <typename Value>
void write_value(Json& object, const char* key, const std::optional<Value>& value) {
  if (value) write_value(object, key, *value);
}

// Returns the JSON object with the members of `all`. An optional member without a value has no key.
template <typename Struct>
Json write_keys(const Struct& all) {
  Json object = Json::object();
  keys_of(all)(all, [&](const char* key, const auto& value, const Range& = {}, unsigned = 0) {
    write_value(object, key, value);
  });
  return object;
}

}  // namespace ql
