// One option table per tool. The parser, --help, the man page's OPTIONS section and the bash
// completion all come from it, so they cannot disagree.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ql {

enum class OptionType {
  kFlag,         // no value
  kText,         // any text
  kFile,         // a path; "-" where the help says so
  kFolder,       // a path of a folder
  kInteger,      // whole number with unit, see base/number.h
  kReal,         // real number
  kIntegerList,  // comma-separated whole numbers
  kChoice,       // one of `choices`
};

struct Option {
  std::string name;  // "frame-tokens", used as --frame-tokens
  char letter = 0;   // 'o' for -o; 0 for none
  OptionType type = OptionType::kFlag;
  std::string value_name;            // "DIR", "N": shown in help; empty for flags
  std::string help;                  // one or two sentences, no trailing newline
  std::string default_value;         // as typed; empty: no default
  std::vector<std::string> choices;  // for kChoice
  // Returns words that the completion offers beside files, or for a text: names of presets, keys.
  // It is called only where the completion is made.
  std::function<std::vector<std::string>()> offered;
  bool required = false;
  bool repeatable = false;           // may be given several times; each use adds a value
  std::int64_t minimum = INT64_MIN;  // for kInteger and kIntegerList items
  std::int64_t maximum = INT64_MAX;
  double least = -HUGE_VAL, most = HUGE_VAL;  // for kReal
};

struct Example {
  std::string command;  // a whole shell line
  std::string meaning;
};

// A tool without subcommands has one Command with an empty name. Such a command at the head of
// others is the tool's default: what runs when the first argument is not the name of another. With
// others beside it, it takes no positional arguments: they could not be told from a mistyped name.
struct Command {
  std::string name;        // "pack"
  std::string summary;     // one line, lower case, no full stop
  std::string positional;  // "[FILE...|-]", "MANIFEST..."; empty: none allowed
  std::vector<Option> options;
  std::vector<Example> examples;
};

struct ToolTable {
  std::string name;     // "qlbin"
  std::string summary;  // one line
  std::vector<Command> commands;
};

// The values of one command line after parsing. They have been checked: no getter fails because of
// what a user typed. Asking for an option the table does not have, for the wrong type, or for one
// value where there is none (see has()), is a programming error (std::logic_error).
class Options {
 public:
  const Command& command() const { return *command_; }
  const std::vector<std::string>& positional() const { return positional_; }

  // True when typed on the command line (a default does not count).
  bool given(const std::string& name) const;
  // True when there is a value, typed or default.
  bool has(const std::string& name) const;

  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;  // kText, kFile, kFolder, kChoice
  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  // kIntegerList, or a repeatable kInteger; the items of all uses. Empty when not given.
  std::vector<std::int64_t> integers(const std::string& name) const;
  // One text per use of a repeatable option. Empty when not given.
  std::vector<std::string> texts(const std::string& name) const;

  // Every option of the command with a value, as typed or by default (several values with blanks
  // between): for provenance. The options that all commands share are left out.
  std::map<std::string, std::string> resolved() const;

 private:
  friend Options parse_options(const ToolTable& tool, const std::vector<std::string>& arguments);
  const Option& option(const std::string& name) const;
  const std::vector<std::string>& values(const std::string& name) const;
  const std::string& single(const std::string& name) const;

  const Command* command_ = nullptr;
  std::vector<std::string> positional_;
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, bool> given_;
};

// `arguments` without the program's name. `tool` must outlive the result. Throws UsageError that
// names the option, the value, what is allowed, and the nearest option for a mistyped one.
// Options that every command has (help, version, quiet, verbose) are added by parse and render.
Options parse_options(const ToolTable& tool, const std::vector<std::string>& arguments);

// --help of the tool (command == nullptr: the list of commands, after the help of the default
// command if there is one) or of one command.
std::string render_help(const ToolTable& tool, const Command* command);

// The OPTIONS section of the tool's man page in mdoc(7) macros.
std::string render_man_options(const ToolTable& tool);

// A bash completion script for the tool.
std::string render_bash_completion(const ToolTable& tool);

}  // namespace ql
