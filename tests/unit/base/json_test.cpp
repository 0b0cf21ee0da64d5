// Tests strict JSON, compared with nlohmann's own reader.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "unit/complaint.h"
#include "unit/scratch.h"

namespace ql {

using test::complaint;

namespace {

std::string message_of(const std::string& text) {
  return complaint<FormatError>([&] { parse_json(text, "f.json"); });
}

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

}  // namespace

TEST_CASE("parse_json: order and values are kept") {
  const std::string text = R"({"z":1,"a":[true,false,null,-2,2.5,"é\n"],"m":{"k":{}}})";
  CHECK(parse_json(text, "f").dump() ==
        R"({"z":1,"a":[true,false,null,-2,2.5,"é\n"],"m":{"k":{}}})");
  CHECK(parse_json("7", "f") == 7);
  CHECK(parse_json(" [ ] ", "f").dump() == "[]");
  CHECK(parse_json("18446744073709551615", "f").dump() == "18446744073709551615");
}

TEST_CASE("parse_json: agrees with nlohmann's own reader where both accept") {
  for (const char* text : {"{}", "[[],{},[{}]]", R"({"a":{"b":[1,{"c":2}]},"d":"x"})", "null",
                           "1e3", "[1,2,3]", R"(["\u00e9\ud83d\ude00"])"}) {
    CHECK(parse_json(text, "f") == Json::parse(text));
  }
}

TEST_CASE("parse_json: errors name the place") {
  // The words after the place are nlohmann's, and differ between its versions.
  CHECK(message_of("{\"a\": 1,\n \"b\": nul}").find("f.json: line 2, column 10: ") == 0);
  CHECK(message_of("").find("f.json: line 1, column 1: ") == 0);
  CHECK(message_of("[1]\n[2]").find("f.json: line 2, column 1: ") == 0);
  CHECK(message_of("{\n\n  \"a\" x}").find("f.json: line 3, column 7: ") == 0);
}

TEST_CASE("parse_json: duplicate keys are refused at any depth") {
  CHECK(message_of(R"({"a":1,"b":2,"a":3})") ==
        "f.json: line 1, column 16: the key 'a' appears twice in this object");
  CHECK(message_of(R"([{"x":{"k":1,"k":1}}])").find("'k' appears twice in this object") !=
        std::string::npos);
  CHECK(message_of(R"({"\u0061":1,"a":3})").find("twice") != std::string::npos);
  CHECK(message_of(R"([{"a":1},{"a":1},{"b":{"a":1},"a":2}])").empty());
  const std::string longest(100000, 'k');
  CHECK(message_of("{\"" + longest + "\":1,\"" + longest + "\":2}").size() < 200);
}

TEST_CASE("parse_json: nesting is limited") {
  CHECK(message_of(nested(64)).empty());
  CHECK(message_of(nested(65)).find("nested deeper than 64 levels") != std::string::npos);
  CHECK(message_of(std::string(1'000'000, '[')).find("nested deeper") != std::string::npos);
}

TEST_CASE("parse_json: texts that are not JSON") {
  for (const char* text :
       {"[1,]",        "{\"a\":1,}", "[1 2]",      "// c\n1",   "{a:1}",
        "'a'",         "NaN",        "Infinity",   "-Infinity", "01",
        "+1",          ".5",         "1.",         "1e999",     "-1e999",
        "[1",          "\"a",        "\"\x01\"",   "\"\xff\"",  "\"\xed\xa0\x80\"",
        "\"\\ud800\"", "1 2",        "{\"a\":1}}", "{\"a\"}"}) {
    CAPTURE(text);
    CHECK_FALSE(message_of(text).empty());
  }
  CHECK(message_of(std::string("1\0 garbage", 10)) ==
        "f.json: line 1, column 2: a NUL byte is not JSON");
}

TEST_CASE("parse_json: every cut of a document is refused") {
  const std::string text = R"({"a":[1,2.5,"x"],"b":{"c":null,"d":true}})";
  for (std::size_t size = 0; size < text.size(); ++size) {
    CHECK_FALSE(message_of(text.substr(0, size)).empty());
  }
}

TEST_CASE("JsonObject: typed access") {
  const Json json = parse_json(
      R"({"n":3,"neg":-1,"f":1.9,"e":1e3,"big":18446744073709551615,"huge":99999999999999999999,
          "s":"x","t":true,"l":[1,2],"m":[1,2.0],"o":{"k":"v"},"null":null})",
      "f");
  const JsonObject object(json, "f.json");
  CHECK(object.integer("n") == 3);
  CHECK(object.integer("neg") == -1);
  CHECK(object.real("n") == 3);
  CHECK(object.real("f") == 1.9);
  CHECK(object.text("s") == "x");
  CHECK(object.boolean("t"));
  CHECK(object.integers("l") == std::vector<std::int64_t>{1, 2});
  CHECK(object.object("o").text("k") == "v");
  CHECK(object.object("o").where() == "f.json: o");
  CHECK(object.has("null"));
  CHECK_FALSE(object.has("absent"));
  CHECK_THROWS_AS(object.integer("big"), FormatError);
  CHECK_THROWS_AS(object.integer("huge"), FormatError);
  CHECK_THROWS_AS(object.integer("e"), FormatError);
  CHECK_THROWS_AS(object.integer("t"), FormatError);
  CHECK_THROWS_AS(object.boolean("n"), FormatError);
  CHECK_THROWS_AS(object.real("s"), FormatError);
  CHECK_THROWS_AS(object.text("null"), FormatError);
  CHECK_THROWS_AS(object.integers("n"), FormatError);
  CHECK_THROWS_AS(object.object("l"), FormatError);
  CHECK(complaint<FormatError>([&] { object.integer("f"); }) ==
        "f.json: f: expected a whole number, found the number 1.9");
  CHECK(complaint<FormatError>([&] { object.integer("neg", 0); }) ==
        "f.json: neg: expected at least 0, found -1");
  CHECK(complaint<FormatError>([&] { object.integer("n", 0, 2); }) ==
        "f.json: n: expected at most 2, found 3");
  CHECK(complaint<FormatError>([&] { object.integers("m"); }) ==
        "f.json: m[1]: expected a whole number, found the number 2.0");
  CHECK(complaint<FormatError>([&] { object.text("absent"); }) ==
        "f.json: the key 'absent' is missing");
  CHECK(complaint<FormatError>([&] {
          object.require({"n", "absent", "t", "gone"});
        }) == "f.json: the keys 'absent', 'gone' are missing");
  CHECK(complaint<FormatError>([&] {
          object.refuse_unknown({"neg", "nn"});
        }) == "f.json: unknown key 'n'");
  CHECK(complaint<FormatError>([&] {
          object.object("o").refuse_unknown({"key", "K", "kk"});
        }) == "f.json: o: unknown key 'k'");
  CHECK_NOTHROW(object.object("o").refuse_unknown({"k"}));
  CHECK_THROWS_AS(JsonObject(Json::array(), "f"), FormatError);
  const Json typo = Json::parse(R"({"segmnet":1})");
  CHECK(complaint<FormatError>([&] {
          JsonObject(typo, "m").refuse_unknown({"segment", "memory"});
        }) == "m: unknown key 'segmnet'; did you mean 'segment'?");
}

TEST_CASE("dump_json: the layout of objects and lists") {
  CHECK(dump_json(Json{{"b", 1}, {"a", {1, 2}}}) ==
        "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2\n  ]\n}\n");
  CHECK_THROWS_AS(dump_json(Json{{"x", std::nan("")}}), Error);
  CHECK_THROWS_AS(dump_json(Json{{"x", {1.0, std::numeric_limits<double>::infinity()}}}), Error);
  CHECK_THROWS_AS(dump_json(Json("\xff")), Error);
  const Json json = Json::parse(R"({"x":0.1,"y":1e-300,"z":123456789012345678})");
  CHECK(parse_json(dump_json(json), "f") == json);
}

TEST_CASE("read_json: reading a JSON file names the file") {
  const test::ScratchFolder scratch;
  test::spill(scratch / "a.json", "{\"a\":");
  CHECK_THROWS_AS(read_json(scratch / "a.json"), FormatError);
  CHECK_THROWS_WITH_AS(read_json(scratch / "none.json"),
                       doctest::Contains("none.json: cannot open"), SystemError);
}

}  // namespace ql
