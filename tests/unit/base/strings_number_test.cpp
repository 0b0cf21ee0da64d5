// Tests numbers with units, and of numbers for people.

#include <doctest/doctest.h>

#include <cmath>

#include "base/strings.h"

namespace ql {

TEST_CASE("parse_integer: whole numbers with units") {
  CHECK(parse_integer("0") == 0);
  CHECK(parse_integer("-5") == -5);
  CHECK(parse_integer("12") == 12);
  CHECK(parse_integer("007") == 7);
  CHECK(parse_integer("1k") == 1000);
  CHECK(parse_integer("1Ki") == 1024);
  CHECK(parse_integer("64M") == 64'000'000);
  CHECK(parse_integer("3Mi") == 3 * 1048576);
  CHECK(parse_integer("2G") == 2'000'000'000);
  CHECK(parse_integer("2Gi") == 2147483648);
  CHECK(parse_integer("1T") == 1'000'000'000'000);
  CHECK(parse_integer("1Ti") == 1099511627776);
  CHECK(parse_integer("-2k") == -2000);
}

TEST_CASE("parse_integer: whole numbers at the limits of 64 bits") {
  CHECK(parse_integer("9223372036854775807") == INT64_MAX);
  CHECK(parse_integer("-9223372036854775808") == INT64_MIN);
  CHECK_FALSE(parse_integer("9223372036854775808"));
  CHECK_FALSE(parse_integer("-9223372036854775809"));
  CHECK_FALSE(parse_integer("99999999999999999999999999"));
  CHECK(parse_integer("9223372036854775k") == 9223372036854775000);
  CHECK_FALSE(parse_integer("9223372036854776k"));
  CHECK(parse_integer("8388607Ti") == INT64_MAX - 1099511627775);
  CHECK_FALSE(parse_integer("8388608Ti"));
  CHECK(parse_integer("-8388608Ti") == INT64_MIN);
}

TEST_CASE("parse_integer: texts that are not whole numbers") {
  for (const char* text : {"",    "-",  "+1",    "--1", " 1",  "1 ",  "1.5",  "1.", "0x10",
                           "1e3", "k",  "1kk",   "1ki", "1K",  "1m",  "1Kib", "1B", "1Gb",
                           "i",   "1i", "1,000", "ten", "1\n", "\t1", "٣",    "1_0"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_integer(text));
  }
  CHECK_FALSE(parse_integer(std::string_view("1\0", 2)));
}

TEST_CASE("parse_real: real numbers") {
  CHECK(parse_real("0.25") == 0.25);
  CHECK(parse_real("2.5e-4") == 2.5e-4);
  CHECK(parse_real("-1.5") == -1.5);
  CHECK(parse_real("10k") == 10000);
  CHECK(parse_real("0.5Ki") == 512);
  CHECK(parse_real("1e308") == 1e308);
  for (const char* text : {"", "1.5x", "nan", "inf", "-inf", "infinity", "1e400", "1e308k", "0x10",
                           " 1", "1 ", "+1", "1,5", ".", "-", "1e", "e5"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_real(text));
  }
}

TEST_CASE("parse_integer_list: lists of whole numbers") {
  using List = std::vector<std::int64_t>;
  CHECK(parse_integer_list("1") == List{1});
  CHECK(parse_integer_list("4,8,16k") == List{4, 8, 16000});
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "1, 2", "1;2", "1,x"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_integer_list(text));
  }
}

TEST_CASE("split: keeps empty parts") {
  using Parts = std::vector<std::string>;
  CHECK(split("", ',') == Parts{""});
  CHECK(split("a", ',') == Parts{"a"});
  CHECK(split("a,,b", ',') == Parts{"a", "", "b"});
  CHECK(split(",", ',') == Parts{"", ""});
}

TEST_CASE("with_thousands, human_...: numbers for people") {
  CHECK(with_thousands(0) == "0");
  CHECK(with_thousands(999) == "999");
  CHECK(with_thousands(1000) == "1,000");
  CHECK(with_thousands(2088628) == "2,088,628");
  CHECK(with_thousands(-999) == "-999");
  CHECK(with_thousands(-123456) == "-123,456");
  CHECK(with_thousands(INT64_MIN) == "-9,223,372,036,854,775,808");

  CHECK(human_perplexity(1) == "1.00");
  CHECK(human_perplexity(47.4083) == "47.41");
  CHECK(human_perplexity(999999.4) == "999999.40");
  CHECK(human_perplexity(1234567.8) == "1.235e+06");
  CHECK(human_perplexity(3.7e83) == "3.700e+83");
  CHECK(human_perplexity(INFINITY) == "inf");

  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1024) == "1.0 KiB");
  CHECK(human_bytes(1536) == "1.5 KiB");
  CHECK(human_bytes(1048575) == "1.0 MiB");
  CHECK(human_bytes(INT64_MAX) == "8.0 EiB");

  CHECK(human_seconds(0) == "0.0s");
  CHECK(human_seconds(9.94) == "9.9s");
  CHECK(human_seconds(9.96) == "10s");
  CHECK(human_seconds(59.6) == "1m00s");
  CHECK(human_seconds(75.2) == "1m15s");
  CHECK(human_seconds(3599.6) == "1h00m");
  CHECK(human_seconds(3700) == "1h02m");
  CHECK(human_seconds(86399) == "1d00h");
  CHECK(human_seconds(200000) == "2d08h");
  CHECK(human_seconds(-1) == "?");
  CHECK(human_seconds(NAN) == "?");
  CHECK(human_seconds(INFINITY) == "?");
}

}  // namespace ql
