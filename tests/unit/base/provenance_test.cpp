// Tests provenance and of shortened command lines.

#include "base/provenance.h"

#include <doctest/doctest.h>

#include <numeric>

namespace ql {

namespace {

std::vector<std::string> numbered_names(int count, const std::string& before = "a-text-") {
  std::vector<std::string> names;
  for (int i = 1; i <= count; ++i) names.push_back(before + std::to_string(i));
  return names;
}

std::string all_of_them(const std::vector<std::string>& words) {
  return std::accumulate(words.begin(), words.end(), std::string(),
                         [](const std::string& text, const std::string& word) {
                           return text.empty() ? word : text + " " + word;
                         });
}

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("shortened_words: words are quoted, and shortened only when they are long") {
  CHECK(shortened_words({}).empty());
  CHECK(shortened_words({"a b", "it's", "", "-l", "$x"}) == R"('a b' 'it'\''s' '' -l '$x')");
  const std::vector<std::string> some = numbered_names(1000);
  CHECK(shortened_words(some) == all_of_them(some));
  CHECK(
      shortened_words(numbered_names(2000)) ==
      "a-text-1 a-text-2 a-text-3 a-text-4 a-text-5 a-text-6 a-text-7 a-text-8 ... 1,991 more ... "
      "a-text-2000");
}

TEST_CASE("shortened_words: options stay when names are shortened") {
  const std::vector<std::string> many = numbered_names(30000), few = numbered_names(10, "b");
  const std::string first = "a-text-1 a-text-2 a-text-3 a-text-4 a-text-5 ";
  struct Case {
    std::vector<std::string> words;
    std::string text;
  };
  const Case cases[] = {
      // The option stands before the names, after them, or between.
      {with({"qltok", "vocab", "-o", "v.json"}, many),
       "qltok vocab -o v.json " + first + "a-text-6 a-text-7 ... 29,992 more ... a-text-30000"},
      {with(with({"qltok", "vocab"}, many), {"--type", "word", "--lowercase"}),
       "qltok vocab " + first +
           "a-text-6 ... 29,993 more ... a-text-30000 --type word --lowercase"},
      {with(with(many, {"--type", "word"}), few),
       first +
           "a-text-6 a-text-7 a-text-8 ... 29,991 more ... a-text-30000 --type word b1 b2 b3 b4 "
           "b5 b6 b7 ... 2 more ... b10"},
      // Short runs of names stay.
      {with(with(many, {"--", "-x"}), few),
       first + "a-text-6 a-text-7 a-text-8 ... 29,991 more ... a-text-30000 -- -x " +
           all_of_them(few)},
  };
  for (const Case& row : cases) CHECK(shortened_words(row.words) == row.text);
}

TEST_CASE("provenance: its size has a bound, whatever the user types") {
  const auto command_of = [](const std::vector<std::string>& arguments) {
    set_provenance("tool", arguments);
    return provenance(Json::object())["command"].get<std::string>();
  };
  CHECK(command_of({"-o", "x"}) == "tool -o x");
  // One long value keeps both of its ends.
  const std::string value = std::string(20000, 'x') + "y";
  CHECK(command_of({"--set=" + value}) == "tool --set=" + std::string(1013, 'x') +
                                              " ... 17,964 bytes more ... " +
                                              std::string(1023, 'x') + "y");
  // No character is cut in two.
  std::string wide;
  for (int i = 0; i < 10000; ++i) wide += "\xE2\x82\xAC";
  const Json made = provenance(Json{{"a", wide}, {"b", "short"}, {"n", 5}});
  const std::string kept = made["configuration"]["a"];
  CHECK(kept.size() < 2200);
  CHECK(kept.find("\xEF\xBF\xBD") == std::string::npos);
  CHECK_NOTHROW(made.dump());
  CHECK(made["configuration"]["b"] == "short");
  CHECK(made["configuration"]["n"] == 5);
  // Each byte of these takes six bytes in JSON, or three.
  for (const char letter : {'\1', '\xFF'}) {
    CHECK(Json(command_of({std::string(100000, letter)})).dump().size() < 16384);
  }
  CHECK(command_of(numbered_names(30000)) == command_of(numbered_names(30000)));
  set_provenance("", {});
}

}  // namespace ql
