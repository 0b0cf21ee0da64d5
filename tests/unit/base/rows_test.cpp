// Tests tab-separated rows.

#include "base/rows.h"

#include <doctest/doctest.h>

namespace ql {

namespace {

// Returns the header and the row.
std::string tsv(const Json& row) { return TableText("all", /*terminal=*/0).lines(row); }

}  // namespace

TEST_CASE("TableText: a line has one field a column, whatever the names contain") {
  const Json row{
      {"checkpoint", "a\tb\nc\\d\re\x1b\xff"}, {"n", 12}, {"x", 0.1 + 0.2}, {"none", nullptr}};
  CHECK(tsv(row) ==
        "checkpoint\tn\tx\tnone\n"
        "a\\tb\\nc\\\\d\\re?\\xFF\t12\t0.3\t-\n");
  CHECK(tsv(Json{{"scales", {3, 3}}, {"one", Json::array({8})}}) == "scales\tone\n3,3\t8\n");
  CHECK(json_line(Json{{"name", "odd\xff"}}) == "{\"name\":\"odd\xEF\xBF\xBD\"}");
}

TEST_CASE("TableText: real numbers have eight digits, counts and their halves all") {
  CHECK(tsv(Json{{"big", 123456789.25}}) == "big\n1.2345679e+08\n");
  CHECK(tsv(Json{{"integer", 1234567890.0}, {"half", 123456789.5}, {"small", 3.0}}) ==
        "integer\thalf\tsmall\n1234567890\t123456789.5\t3\n");
  CHECK(tsv(Json{{"huge", 1.23456789012e20}}) == "huge\n1.2345679e+20\n");
}

TEST_CASE("TableText: a column is as wide as its widest expected cell") {
  const std::vector<Json> rows = {Json{{"name", "a"}, {"n", 1}, {"rest", 5}},
                                  Json{{"name", "abcdef"}, {"n", 1000}, {"rest", 5}}};
  const auto table = [&rows](std::size_t terminal, bool expected) {
    TableText text("", terminal);
    for (const Json& row : rows) {
      if (expected) text.expect(row);
    }
    const std::string first = text.lines(rows[0]);
    return first + text.lines(rows[1]);
  };
  CHECK(table(80, true) ==
        "name       n  rest\n"
        "a          1     5\n"
        "abcdef  1000     5\n");
  // A column is left out if any expected row would exceed the terminal with it.
  CHECK(table(17, true) ==
        "name       n\n"
        "a          1\n"
        "abcdef  1000\n");
  CHECK(table(17, false) ==
        "name  n  rest\n"
        "a     1     5\n"
        "abcdef  1000     5\n");
}

}  // namespace ql
