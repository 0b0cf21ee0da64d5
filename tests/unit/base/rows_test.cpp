// Tests tab-separated rows.

#include "base/rows.h"

#include <doctest/doctest.h>

namespace ql {

TEST_CASE("tsv_line: a line has one field a column, whatever the names contain") {
  const Json row{
      {"checkpoint", "a\tb\nc\\d\re\x1b\xff"}, {"n", 12}, {"x", 0.1 + 0.2}, {"none", nullptr}};
  CHECK(tsv_header(row) == "checkpoint\tn\tx\tnone\n");
  CHECK(tsv_line(row) == "a\\tb\\nc\\\\d\\re?\\xFF\t12\t0.3\t-\n");
  CHECK(tsv_line(Json{{"scales", {3, 3}}, {"one", Json::array({8})}}) == "3,3\t8\n");
  CHECK(json_line(Json{{"name", "odd\xff"}}) == "{\"name\":\"odd\xEF\xBF\xBD\"}");
}

TEST_CASE("tsv_line: real numbers have eight digits, counts and their halves all") {
  CHECK(tsv_line(Json{{"big", 123456789.25}}) == "1.2345679e+08\n");
  CHECK(tsv_line(Json{{"integer", 1234567890.0}, {"half", 123456789.5}, {"small", 3.0}}) ==
        "1234567890\t123456789.5\t3\n");
  CHECK(tsv_line(Json{{"huge", 1.23456789012e20}}) == "1.2345679e+20\n");
}

}  // namespace ql
