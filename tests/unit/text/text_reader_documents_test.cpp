// Tests the rules for where documents begin.

#include <doctest/doctest.h>

#include <string>

#include "text/text_reader.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

LineHistory after(bool any_text, bool blank) {
  LineHistory history;
  if (any_text) history.add(false);
  if (blank) history.add(true);
  return history;
}

TEST_CASE("DocumentRule: a blank line separates documents") {
  const DocumentRule rule("blank");
  CHECK(rule.begins_at("a", after(true, true)));
  CHECK_FALSE(rule.begins_at(" \t\r", after(true, true)));
  CHECK_FALSE(rule.begins_at("a", after(true, false)));
  CHECK_FALSE(rule.begins_at("a", after(false, true)));
  CHECK_FALSE(rule.begins_at("a", after(false, false)));
  CHECK_FALSE(rule.begins_at(std::string(kLineHead, ' ') + "a", after(true, true)));
  CHECK(rule.begins_at(std::string(kLineHead - 1, ' ') + "a", after(true, true)));
  CHECK_FALSE(rule.at_files());
}

TEST_CASE("DocumentRule: file, line, none") {
  CHECK(DocumentRule("file").at_files());
  CHECK_FALSE(DocumentRule("file").begins_at("a", after(true, true)));
  CHECK(DocumentRule("line").begins_at("", after(false, false)));
  CHECK_FALSE(DocumentRule("none").begins_at("a", after(true, true)));
  CHECK_FALSE(DocumentRule("none").at_files());
}

TEST_CASE("DocumentRule: the heading of an article of WikiText") {
  const DocumentRule rule("^ = [^=].* = $");
  CHECK(rule.begins_at(" = Robert Boulter = ", after(true, false)));
  CHECK(rule.begins_at(" = Robert Boulter = \r", after(true, false)));
  CHECK_FALSE(rule.begins_at(" = = Career = = ", after(true, false)));
  CHECK_FALSE(rule.begins_at(" = Robert Boulter = ", after(false, true)));
  CHECK_FALSE(rule.begins_at(" a = b = ", after(true, false)));
  CHECK_FALSE(rule.begins_at("", after(true, false)));
}

TEST_CASE("DocumentRule: a pattern is found anywhere unless it is anchored") {
  CHECK(DocumentRule("Chapter").begins_at("--- Chapter 1", after(true, false)));
  CHECK_FALSE(DocumentRule("^Chapter").begins_at("--- Chapter 1", after(true, false)));
  CHECK(DocumentRule("^A|B$").begins_at("xB", after(true, false)));
  CHECK(DocumentRule("^$").begins_at("", after(true, false)));
  CHECK_FALSE(DocumentRule("^$").begins_at("a", after(true, false)));
}

TEST_CASE("DocumentRule: long lines match no pattern, and no pattern exhausts the stack on them") {
  const DocumentRule rule("^(a|b)*$");
  CHECK(rule.begins_at(std::string(kLineHead, 'a'), after(true, false)));
  CHECK_FALSE(rule.begins_at(std::string(kLineHead + 1, 'a'), after(true, false)));
  CHECK_FALSE(rule.begins_at(std::string(std::size_t{1} << 20, 'a'), after(true, false)));
}

// A backtracking search would take longer than the age of the universe.
TEST_CASE("DocumentRule: only a pattern with a back-reference may take exponential time") {
  const std::string words = std::string(60, 'a') + " bbb " + std::string(60, 'c') + ".";
  CHECK_FALSE(DocumentRule("^(\\w+\\s?)*$").begins_at(words, after(true, false)));
  CHECK(DocumentRule("^(\\w+\\s?)*.$").begins_at(words, after(true, false)));
  CHECK_FALSE(DocumentRule("^(\\w+\\s?)*$").may_take_long());
  CHECK(DocumentRule("^(=+) .* \\1$").may_take_long());
  CHECK(DocumentRule("^(=+) .* \\1$").begins_at("== Career ==", after(true, false)));
  CHECK_FALSE(DocumentRule("^(=+) .* \\1$").begins_at("== Career =", after(true, false)));
}

TEST_CASE("DocumentRule: a bad rule is a usage error") {
  CHECK_THROWS_AS(DocumentRule(""), UsageError);
  CHECK_THROWS_AS(DocumentRule("a("), UsageError);
  CHECK_THROWS_AS(DocumentRule("[z-a]"), UsageError);
}

}  // namespace
}  // namespace ql::text
