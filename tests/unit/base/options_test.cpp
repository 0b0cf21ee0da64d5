// Tests the parser with a table that has every kind of option.

#include "base/options.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "unit/complaint.h"
#include "unit/sample_table.h"

namespace ql {

namespace {

using Arguments = std::vector<std::string>;

Options pack(Arguments arguments) {
  arguments.insert(arguments.begin(), {"pack", "-o", "out"});
  return parse_options(test::sample_table(), arguments);
}

std::string complaint(const Arguments& arguments, const ToolTable& table = test::sample_table()) {
  return test::complaint<UsageError>([&] { parse_options(table, arguments); });
}

std::string pack_complaint(Arguments arguments) {
  arguments.insert(arguments.begin(), {"pack", "-o", "out"});
  return complaint(arguments);
}

}  // namespace

TEST_CASE("parse_options: values of every type") {
  const Options options =
      pack({"--frame-tokens", "1k", "--input=ids", "-s", "a=1", "--set", "b=2,3", "--lengths",
            "1,2k", "-r", "-2.5e-1", "--vocab", "a,b.json", "-f", "one", "-", "two"});
  CHECK(options.command().name == "pack");
  CHECK(options.text("output") == "out");
  CHECK(options.integer("frame-tokens") == 1000);
  CHECK(options.text("input") == "ids");
  CHECK(options.texts("set") == Arguments{"a=1", "b=2,3"});
  CHECK(options.integers("lengths") == std::vector<std::int64_t>{1, 2000});
  CHECK(options.real("rate") == -0.25);
  CHECK(options.text("vocab") == "a,b.json");
  CHECK(options.flag("force"));
  CHECK_FALSE(options.flag("quiet"));
  CHECK(options.positional() == Arguments{"one", "-", "two"});
}

TEST_CASE("parse_options: defaults") {
  const Options options = pack({});
  CHECK(options.integer("frame-tokens") == 65536);
  CHECK(options.text("input") == "stream");
  CHECK(options.integers("lengths") == std::vector<std::int64_t>{4, 8});
  CHECK(options.real("rate") == 0.5);
  CHECK(options.has("rate"));
  CHECK_FALSE(options.given("rate"));
  CHECK(options.given("output"));
  CHECK_FALSE(options.has("vocab"));
  CHECK(options.texts("set").empty());
  CHECK_FALSE(options.flag("force"));
  CHECK(options.positional().empty());
}

TEST_CASE("Options::refuse: the first option that was typed is named") {
  const auto refused = [](const Arguments& arguments) {
    return test::complaint<UsageError>([&] {
      pack(arguments).refuse({"rate", "vocab", "force"}, "--{}", "{} is not possible", "omit {}");
    });
  };
  CHECK(refused({}) == "");
  CHECK(refused({"--force", "--vocab", "v"}) == "--vocab: vocab is not possible; omit vocab");
  CHECK(refused({"--rate", "0.5"}) == "--rate: rate is not possible; omit rate");
  CHECK_THROWS_AS(pack({}).refuse({"no-such"}, "", "", ""), std::logic_error);
}

TEST_CASE("parse_options: a typed list replaces its default") {
  CHECK(pack({"--lengths", "16"}).integers("lengths") == std::vector<std::int64_t>{16});
}

TEST_CASE("parse_options: ways to write an option") {
  CHECK(pack({"--rate=-1"}).real("rate") == -1);
  CHECK(pack({"--rate", "-1"}).real("rate") == -1);
  CHECK(pack({"-r2"}).real("rate") == 2);
  CHECK(pack({"-fr", "2"}).real("rate") == 2);
  CHECK(pack({"-fqr2"}).flag("quiet"));
  CHECK(pack({"-sa/b=c.d"}).texts("set") == Arguments{"a/b=c.d"});
  CHECK(pack({"-fs", "-sa/b"}).texts("set") == Arguments{"-sa/b"});
  CHECK(pack({"-fsa/b", "-q"}).flag("quiet"));
  CHECK(pack({"-s=x"}).texts("set") == Arguments{"=x"});
  CHECK(pack({"-s", "-f/x", "--set", "-o/x"}).texts("set") == Arguments{"-f/x", "-o/x"});
  CHECK(pack({"--vocab", "-s/x", "-s", "--", "y"}).texts("set") == Arguments{"--"});
  CHECK(pack({"--", "-s/x"}).positional() == Arguments{"-s/x"});
  CHECK(pack({"--set=" + std::string(1'000'000, 'x')}).texts("set")[0].size() == 1'000'000);
  CHECK(pack({"--set=", "-s", ""}).texts("set") == Arguments{"", ""});
  CHECK(pack({"--set", "a=b=c\n, d", "--set=e\nf"}).texts("set") ==
        Arguments{"a=b=c\n, d", "e\nf"});
  CHECK(pack({"--", "--force", "-x", "--"}).positional() == Arguments{"--force", "-x", "--"});
  CHECK_FALSE(pack({"--", "--force"}).flag("force"));
  CHECK(pack({"a,b", "--force", "c"}).positional() == Arguments{"a,b", "c"});
  CHECK(pack({"-f", "-f", "--force"}).flag("force"));
}

TEST_CASE("Options::resolved: provenance gets every value of the command") {
  const auto all = pack({"-s", "a=1", "-s", "b=2", "-f", "-q"}).resolved();
  CHECK(all == std::map<std::string, std::string>{{"output", "out"},
                                                  {"frame-tokens", "64Ki"},
                                                  {"input", "stream"},
                                                  {"set", "a=1 b=2"},
                                                  {"lengths", "4,8"},
                                                  {"rate", "0.5"},
                                                  {"force", "true"}});
}

TEST_CASE("parse_options: mistyped names get a suggestion") {
  CHECK(pack_complaint({"--frame-token", "5"}) ==
        "pack: unknown option --frame-token; did you mean --frame-tokens? "
        "(see 'qlbox pack --help')");
  CHECK(pack_complaint({"--frame-token=5"}) ==
        "pack: unknown option --frame-token; did you mean --frame-tokens? "
        "(see 'qlbox pack --help')");
  CHECK(pack_complaint({"--qiet"}).find("did you mean --quiet?") != std::string::npos);
  CHECK(pack_complaint({"--zzzzzz"}) == "pack: unknown option --zzzzzz; see 'qlbox pack --help'");
  CHECK(pack_complaint({"--frame.tokens=5"}) ==
        "pack: unknown option --frame.tokens; did you mean --frame-tokens? "
        "(see 'qlbox pack --help')");
  CHECK(pack_complaint({"-x"}) == "pack: unknown option -x; see 'qlbox pack --help'");
  CHECK(pack_complaint({"-fx"}) == "pack: unknown option -x; see 'qlbox pack --help'");
  CHECK(pack_complaint({"-5"}) == "pack: unknown option -5; see 'qlbox pack --help'");
  CHECK(pack_complaint({"---set"}).find("unknown option ---set; did you mean --set?") !=
        std::string::npos);
  CHECK(complaint({"pakc"}) ==
        "unknown command 'pakc', expected one of pack, info; did you mean pack? "
        "(see 'qlbox --help')");
  CHECK(complaint({"-f"}) ==
        "the command must come first: expected one of pack, info, found '-f'; "
        "see 'qlbox --help'");
  CHECK(complaint({"--quiet", "pack"}) ==
        "the command must come first: expected one of pack, info, found '--quiet'; "
        "see 'qlbox --help'");
  CHECK(complaint({"--hlep"}).find("did you mean --help?") != std::string::npos);
  CHECK(complaint({}) == "no command given, expected one of pack, info; see 'qlbox --help'");
  CHECK_FALSE(complaint({""}).empty());
}

TEST_CASE("parse_options: bad values name the option, the value and what is allowed") {
  const std::string see = "; see 'qlbox pack --help'";
  CHECK(pack_complaint({"--frame-tokens", "1.5"}) ==
        "pack: option --frame-tokens: expected a whole number like 12, 10k, 64M or 64Ki, found "
        "'1.5'" +
            see);
  CHECK(pack_complaint({"--frame-tokens=0"}) ==
        "pack: option --frame-tokens: expected 1 to 1048576, found '0'" + see);
  CHECK(pack_complaint({"--frame-tokens=2M"}) ==
        "pack: option --frame-tokens: expected 1 to 1048576, found '2M'" + see);
  CHECK(pack_complaint({"--lengths=4,-1"}) ==
        "pack: option --lengths: expected at least 0, found '4,-1'" + see);
  // 2^64 - 1 does not fit into 64 bits with a sign.
  CHECK(pack_complaint({"--frame-tokens=18446744073709551615"}) ==
        "pack: option --frame-tokens: expected 1 to 1048576, found '18446744073709551615'" + see);
  CHECK(pack_complaint({"--lengths=18446744073709551615"}) ==
        "pack: option --lengths: expected 0 to 9223372036854775807, found "
        "'18446744073709551615'" +
            see);
  CHECK(pack_complaint({"--lengths=4,,8"}) ==
        "pack: option --lengths: expected whole numbers separated by single commas, found '4,,8'" +
            see);
  CHECK(pack_complaint({"--lengths", ""}) ==
        "pack: option --lengths: expected whole numbers separated by single commas, found ''" +
            see);
  CHECK(pack_complaint({"--rate", "1.5x"}) ==
        "pack: option --rate: expected a number like 0.25 or 2.5e-4, found '1.5x'" + see);
  CHECK(pack_complaint({"--input", "idz"}) ==
        "pack: option --input: expected one of stream, ids, u16, found 'idz'; "
        "did you mean ids? (see 'qlbox pack --help')");
  CHECK(pack_complaint({"--input="}) ==
        "pack: option --input: expected one of stream, ids, u16, found ''" + see);
  CHECK(pack_complaint({"--vocab="}) ==
        "pack: option --vocab: expected the name of a file, found ''" + see);
  CHECK(complaint({"pack", "-o", ""}) ==
        "pack: option --output: expected the name of a folder, found ''" + see);
  CHECK(pack_complaint({"--force=yes"}) ==
        "pack: option --force takes no value, found 'yes'" + see);
  CHECK(pack_complaint({"--force="}) == "pack: option --force takes no value, found ''" + see);
  CHECK(pack_complaint({"-f=1"}) == "pack: option --force takes no value, found '1'" + see);
}

TEST_CASE("parse_options: missing and surplus options") {
  const std::string see = "; see 'qlbox pack --help'";
  CHECK(complaint({"pack"}) == "pack: option --output DIR is required" + see);
  CHECK(complaint({"pack", "-o"}) == "pack: option -o needs a value" + see);
  CHECK(complaint({"pack", "-o", "--force"}) ==
        "pack: option -o needs a value, found the option --force" + see);
  CHECK(pack_complaint({"--vocab", "--rate=3"}) ==
        "pack: option --vocab needs a value, found the option --rate" + see);
  CHECK(pack({"--vocab=--force"}).text("vocab") == "--force");
  CHECK(pack({"--vocab", "--forced"}).text("vocab") == "--forced");
  CHECK(pack_complaint({"--rate"}) == "pack: option --rate needs a value" + see);
  CHECK(pack_complaint({"--rate", "1", "-r", "2"}) ==
        "pack: option --rate is given twice, '1' and '2'" + see);
  CHECK(pack_complaint({"-qv"}) == "pack: --quiet and --verbose contradict each other" + see);
  CHECK(complaint({"info"}) ==
        "info: expected MANIFEST..., found 0 arguments; "
        "see 'qlbox info --help'");
}

TEST_CASE("parse_options: positional arguments are counted") {
  const ToolTable& table = test::plain_table();
  CHECK(complaint({}, table) == "expected INPUT [OUTPUT], found 0 arguments; see 'qlone --help'");
  CHECK(parse_options(table, {"a"}).positional() == Arguments{"a"});
  CHECK(parse_options(table, {"a", "b"}).positional() == Arguments{"a", "b"});
  CHECK(complaint({"a", "b", "c"}, table) == "unexpected argument 'c'; see 'qlone --help'");
  CHECK(complaint({"a", ""}, table) ==
        "expected the name of a file or folder, found ''; see 'qlone --help'");
  ToolTable none = table;
  none.commands[0].positional.clear();
  CHECK(complaint({"a"}, none) == "unexpected argument 'a'; see 'qlone --help'");
  CHECK(parse_options(none, {}).integer("level") == 3);
}

TEST_CASE("parse_options: --help and --version need no complete command line") {
  CHECK(parse_options(test::sample_table(), {"pack", "--help"}).flag("help"));
  CHECK(parse_options(test::sample_table(), {"info", "-V"}).flag("version"));
  CHECK(parse_options(test::plain_table(), {"-h", "a", "b", "c"}).flag("help"));
}

TEST_CASE("parse_options: a default command runs where no other is named") {
  const ToolTable& table = test::mixed_table();
  CHECK(parse_options(table, {}).command().name.empty());
  CHECK(parse_options(table, {"-l", "7"}).integer("level") == 7);
  CHECK(parse_options(table, {"plan", "--size", "2"}).integer("size") == 2);
  CHECK(parse_options(table, {"-l", "7", "-q"}).flag("quiet"));
  CHECK(complaint({"pln"}, table) ==
        "unknown command 'pln', expected one of plan; did you mean plan? (see 'qltwo --help')");
  CHECK(complaint({""}, table) == "unexpected argument ''; see 'qltwo --help'");
  CHECK(complaint({"-l", "1", "plan"}, table) == "unexpected argument 'plan'; see 'qltwo --help'");
  CHECK(complaint({"--size", "2"}, table) == "unknown option --size; see 'qltwo --help'");
  CHECK(complaint({"plan", "-l", "1"}, table) ==
        "plan: unknown option -l; see 'qltwo plan --help'");
  ToolTable ambiguous = table;
  ambiguous.commands[0].positional = "[FILE]";
  CHECK_THROWS_AS(parse_options(ambiguous, {"plan"}), std::logic_error);
}

TEST_CASE("Options: misuse of the table is a programming error") {
  const Options options = pack({});
  CHECK_THROWS_AS(options.text("no-such"), std::logic_error);
  CHECK_THROWS_AS(options.has("no-such"), std::logic_error);
  CHECK_THROWS_AS(options.given("no-such"), std::logic_error);
  CHECK_THROWS_AS(options.text("rate"), std::logic_error);
  CHECK_THROWS_AS(options.integer("rate"), std::logic_error);
  CHECK_THROWS_AS(options.real("frame-tokens"), std::logic_error);
  CHECK_THROWS_AS(options.flag("rate"), std::logic_error);
  CHECK_THROWS_AS(options.integers("frame-tokens"), std::logic_error);
  CHECK_THROWS_AS(options.texts("rate"), std::logic_error);
  CHECK_THROWS_AS(options.text("set"), std::logic_error);
  CHECK_THROWS_AS(options.text("vocab"), std::logic_error);
  ToolTable table = test::plain_table();
  table.commands[0].options[0].default_value = "many";
  CHECK_THROWS_AS(parse_options(table, {"a"}), std::logic_error);
  table = test::plain_table();
  table.commands[0].options[0].letter = 'h';
  CHECK_THROWS_AS(parse_options(table, {"a"}), std::logic_error);
  table = test::plain_table();
  table.commands[0].options[0].name = "help";
  CHECK_THROWS_AS(parse_options(table, {"a"}), std::logic_error);
  CHECK_THROWS_AS(parse_options(ToolTable{"qlnone", "", {}}, {}), std::logic_error);
}

}  // namespace ql
