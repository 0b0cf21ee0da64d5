// Strict JSON: what nlohmann_json lets pass silently (duplicate keys, -1 as an unsigned number, 1.9
// as a whole one) is an error here, and every error names the file and the key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ql {

// Keys in insertion order, so that files read as they were written.
using Json = nlohmann::ordered_json;

// Parses; duplicate keys, trailing text, invalid UTF-8 and nesting deeper than 64 are FormatErrors
// at "where: line L". `where` is the file's name.
Json parse_json(std::string_view text, const std::string& where);
Json read_json(const std::filesystem::path& path);

// Indented by two, newline at the end.
std::string dump_json(const Json& json);

// Makes the text that dump_json() makes of an object, without the object: nlohmann_json needs
// memory to destroy a tree, and ends the process when there is none.
class JsonObjectText {
 public:
  // `value` is the value's own text, as dump_json() makes it, with or without the end of its line.
  void add(std::string_view key, std::string_view value);
  std::string text() const;

 private:
  std::string items_;
};
// The text of a list, likewise.
std::string json_list_text(const std::vector<std::string>& items);

// Typed access to one object. Construct it where the object is known; `where` is "file" or
// "file: key". All getters throw FormatError with the place, the expected and the found type.
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
  // Throws when a key outside `known` is present, with the nearest known one.
  void refuse_unknown(const std::vector<std::string>& known) const;
  // Throws FormatError unless "format", the first key of every JSON file of ours, is this, and
  // UnknownVersion unless "version", the second, is.
  void check_format(const std::string& format, std::int64_t version) const;
  const Json& json() const { return *json_; }
  const std::string& where() const { return where_; }

 private:
  const Json& typed(const std::string& key, const char* expected,
                    bool (Json::*is_type)() const noexcept) const;

  const Json* json_;
  std::string where_;
};

}  // namespace ql
