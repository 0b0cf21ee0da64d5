// Tests help, man page options and completion, which a shell runs.

#include <doctest/doctest.h>

#include "base/options.h"
#include "base/strings.h"
#include "unit/sample_table.h"
#include "unit/scratch.h"

namespace ql {

namespace {

// Returns the words that the completion offers after `words`, which blanks separate.
std::string complete(const std::string& words, const ToolTable& table = test::sample_table()) {
  const test::ScratchFolder scratch;
  test::spill(scratch / "complete", render_bash_completion(table));
  test::spill(scratch / "file one", "");
  std::filesystem::create_directory(scratch / "folder");
  test::spill(scratch / "ask", "set -u\n. ./complete\nCOMP_WORDS=(" + words +
                                   ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_" + table.name +
                                   "\nIFS='|'; echo \"${COMPREPLY[*]-}\" >answer\n");
  const std::string command = "cd '" + scratch.path().string() + "' && bash ./ask 2>&1";
  // NOLINTNEXTLINE(cert-env33-c,bugprone-command-processor): the shell is the thing tested
  const int status = std::system(command.c_str());
  CHECK(status == 0);
  return test::slurp(scratch / "answer");
}

}  // namespace

TEST_CASE("render_help: help of a tool") {
  CHECK(render_help(test::sample_table(), nullptr) ==
        R"(Usage: qlbox COMMAND [OPTION...] [ARGUMENT...]

A tool for tests.

Commands:
  pack        write a token stream as shards
  info        describe shards

'qlbox COMMAND --help' describes a command and its options.
)");
}

TEST_CASE("render_help: help of a command") {
  CHECK(render_help(test::sample_table(), test::sample_table().commands.data()) ==
        R"(Usage: qlbox pack --output DIR [OPTION...] [FILE...|-]

Write a token stream as shards.

Options:
  -o, --output DIR        Folder to write. Required.
      --frame-tokens N    Tokens per frame. A power of two is best. Default:
                          64Ki.
      --input TYPE        What to read. One of stream, ids, u16. Default:
                          stream.
  -s, --set KEY=VALUE     Change a setting. May be given several times.
      --lengths N,...     Lengths. Default: 4,8.
  -r, --rate X            A rate. Default: 0.5.
      --vocab FILE        Vocabulary.
  -f, --force             Replace what is there.
  -h, --help              Print this help and exit.
  -V, --version           Print the version and exit.
  -q, --quiet             Print errors only: no progress, notes or warnings.
  -v, --verbose           Print details of what is done, too.

Examples:
  Pack a stream:
    qlbox pack -o data < tokens
)");
}

TEST_CASE("render_help: help of a tool without commands") {
  const std::string help = render_help(test::plain_table(), nullptr);
  CHECK(help.find("Usage: qlone [OPTION...] INPUT [OUTPUT]\n\nOne thing well done.\n") == 0);
  CHECK(help == render_help(test::plain_table(), test::plain_table().commands.data()));
}

TEST_CASE("render_help: help of a default command names the others") {
  const ToolTable& table = test::mixed_table();
  const std::string expected = R"(Usage: qltwo [OPTION...]

Look at boxes.

Options:
  -l, --level N           Level. Default: 3.
  -h, --help              Print this help and exit.
  -V, --version           Print the version and exit.
  -q, --quiet             Print errors only: no progress, notes or warnings.
  -v, --verbose           Print details of what is done, too.

Commands:
  plan        plan a box

'qltwo COMMAND --help' describes a command and its options.
)";
  CHECK(render_help(table, nullptr) == expected);
  CHECK(render_help(table, table.commands.data()) == expected);
  CHECK(render_help(table, &table.commands[1]).find("Commands:") == std::string::npos);
}

TEST_CASE("render_help: no line is wider than 80 columns") {
  ToolTable table = test::plain_table();
  Option& option = table.commands[0].options[0];
  for (int i = 0; i < 60; ++i) option.help += " word" + std::to_string(i);
  option.name = "a-very-long-name-of-an-option";
  for (const std::string& line : split(render_help(table, nullptr), '\n')) {
    CAPTURE(line);
    CHECK(line.size() <= 80);
  }
}

TEST_CASE("render_man_options: a tool with commands") {
  CHECK(render_man_options(test::sample_table()) == R"(.Ss qlbox pack
Write a token stream as shards.
.Bl -tag -width Ds
.It Fl o , Fl \-output Ar \&DIR
Folder to write.
Required.
.It Fl \-frame-tokens Ar \&N
Tokens per frame.
A power of two is best.
Default: 64Ki.
.It Fl \-input Ar \&TYPE
What to read.
One of stream, ids, u16.
Default: stream.
.It Fl s , Fl \-set Ar \&KEY=VALUE
Change a setting.
May be given several times.
.It Fl \-lengths Ar \&N,...
Lengths.
Default: 4,8.
.It Fl r , Fl \-rate Ar \&X
A rate.
Default: 0.5.
.It Fl \-vocab Ar \&FILE
Vocabulary.
.It Fl f , Fl \-force
Replace what is there.
.El
.Ss qlbox info
Describe shards.
.Ss All commands
.Bl -tag -width Ds
.It Fl h , Fl \-help
Print this help and exit.
.It Fl V , Fl \-version
Print the version and exit.
.It Fl q , Fl \-quiet
Print errors only: no progress, notes or warnings.
.It Fl v , Fl \-verbose
Print details of what is done, too.
.El
)");
}

TEST_CASE("render_man_options: a default command's options stand under the tool's name") {
  const std::string options = render_man_options(test::mixed_table());
  CHECK(options.rfind(".Ss qltwo\nLook at boxes.\n.Bl -tag -width Ds\n.It Fl l ,", 0) == 0);
  CHECK(options.find(".Ss qltwo plan\nPlan a box.\n") != std::string::npos);
  CHECK(options.find(".Ss All commands\n") != std::string::npos);
}

TEST_CASE("render_man_options: characters that mdoc would interpret are escaped") {
  const std::string options = render_man_options(test::plain_table());
  CHECK(options.find("Level; 'low' \\e \"high\".\n\\&.5 is not a level.\nDefault: 3.\n") !=
        std::string::npos);
  ToolTable table = test::plain_table();
  Option& option = table.commands[0].options[0];
  option.help = "'quoted' first, see --help.";
  option.value_name = "a \"b\" c";
  CHECK(render_man_options(table).find(".It Fl l , Fl \\-level Ar \"a \\(dqb\\(dq c\"\n"
                                       "\\&'quoted' first, see \\-\\-help.\n") !=
        std::string::npos);
}

TEST_CASE("render_bash_completion: completion of commands, options and values") {
  CHECK(complete("qlbox ''") == "pack|info|--help|--version\n");
  CHECK(complete("qlbox pa") == "pack\n");
  CHECK(complete("qlbox pack --fr") == "--frame-tokens\n");
  CHECK(complete("qlbox info --") == "--help|--version|--quiet|--verbose\n");
  CHECK(complete("qlbox pack --input ''") == "stream|ids|u16\n");
  CHECK(complete("qlbox pack --input = i") == "ids\n");
  CHECK(complete("qlbox pack --input =") == "stream|ids|u16\n");
  CHECK(complete("qlbox pack -o ''") == "folder\n");
  CHECK(complete("qlbox pack --vocab fi") == "file one\n");
  CHECK(complete("qlbox pack fo") == "folder\n");
  CHECK(complete("qlbox pack --frame-tokens ''") == "\n");
  CHECK(complete("qlbox none --") == "\n");
}

TEST_CASE("render_bash_completion: completion of a tool without commands") {
  CHECK(complete("qlone --l", test::plain_table()) == "--level\n");
  CHECK(complete("qlone fi", test::plain_table()) == "file one\n");
  CHECK(complete("qlone -l ''", test::plain_table()) == "\n");
}

TEST_CASE("render_bash_completion: completion of a default command") {
  const ToolTable& table = test::mixed_table();
  CHECK(complete("qltwo ''", table) == "plan|--level|--help|--version|--quiet|--verbose\n");
  CHECK(complete("qltwo --l", table) == "--level\n");
  CHECK(complete("qltwo -l 3 --", table) == "--level|--help|--version|--quiet|--verbose\n");
  CHECK(complete("qltwo plan --s", table) == "--size\n");
}

}  // namespace ql
