// Makes the provenance of this run, with the command line as a text that is shortened where it is
// long.

#include "base/provenance.h"

namespace ql {

namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 10;
// A long text keeps a beginning and an end of this length. Both fit kMostBytes even if JSON escapes
// every byte as six bytes.
constexpr std::size_t kEndBytes = std::size_t{1} << 10;
constexpr std::size_t kFirstNames = 8;

struct Invocation {
  std::string tool, command;
} invocation;

std::string shell_quoted(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%^";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  return fmt::format("'{}'", fmt::join(split(text, '\''), "'\\''"));
}

// A command line and the file names in it may hold any bytes, but JSON holds only UTF-8. Invalid
// bytes become U+FFFD.
std::string valid_utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string bounded(const std::string& typed) {
  std::string text = valid_utf8(typed);
  if (Json(text).dump().size() <= kMostBytes) return text;
  const auto character_at = [&text](std::size_t place) {
    while ((static_cast<unsigned char>(text[place]) & 0xC0U) == 0x80U) --place;
    return place;
  };
  const std::size_t head = character_at(kEndBytes), tail = character_at(text.size() - kEndBytes);
  return fmt::format("{} ... {} bytes more ... {}", text.substr(0, head),
                     with_thousands(static_cast<std::int64_t>(tail - head)), text.substr(tail));
}

bool is_name(const std::string& word) { return word.empty() || word[0] != '-' || word == "-"; }

}  // namespace

const char* version() { return QL_VERSION; }

Json provenance(const Json& configuration) {
  Json values = configuration;
  for (Json& value : values) {
    if (value.is_string()) value = bounded(value.get<std::string>());
  }
  return Json{{"tool", invocation.tool},
              {"version", version()},
              {"command", bounded(invocation.command)},
              {"configuration", std::move(values)}};
}

std::string invoked_tool() { return invocation.tool.empty() ? "PROGRAM" : invocation.tool; }

void set_provenance(const std::string& tool, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{tool};
  words.insert(words.end(), arguments.begin(), arguments.end());
  invocation = {tool, shortened_words(words)};
}

std::string shortened_words(const std::vector<std::string>& words) {
  std::vector<std::string> quoted(words.size());
  std::transform(words.begin(), words.end(), quoted.begin(), shell_quoted);
  std::string text = fmt::format("{}", fmt::join(quoted, " "));
  if (text.size() <= kMostBytes) return text;
  std::vector<std::string> kept;
  for (std::size_t begin = 0; begin < words.size();) {
    std::size_t end = begin;
    while (end < words.size() && is_name(words[end])) ++end;
    if (end - begin > kFirstNames + 2) {
      kept.insert(kept.end(), &quoted[begin], &quoted[begin] + kFirstNames);
      const auto more = static_cast<std::int64_t>(end - begin - kFirstNames - 1);
      kept.push_back(fmt::format("... {} more ...", with_thousands(more)));
      begin = end - 1;
    }
    // Keeps the remaining names, and the option that follows them, if there is one.
    end = std::min(end + 1, words.size());
    kept.insert(kept.end(), quoted.begin() + static_cast<std::ptrdiff_t>(begin),
                quoted.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return fmt::format("{}", fmt::join(kept, " "));
}

}  // namespace ql
