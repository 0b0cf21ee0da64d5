// One option table per tool gives the parser, --help, the man page's OPTIONS and the completion.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace ql {

// All options of a tool stand in one table, so parser, help, man page and bash completion agree.

enum class OptionType {
  kFlag,         // no value
  kText,         // any text
  kFile,         // a path; "-" where the help says so
  kFolder,       // a path of a folder
  kInteger,      // whole number with unit, see base/strings.h
  kReal,         // real number
  kIntegerList,  // comma-separated whole numbers
  kChoice,       // one of `choices`
};

struct Option {
  std::string name;  // "frame-tokens", used as --frame-tokens
  OptionType type = OptionType::kFlag;
  std::string value_name;              // "DIR", "N": shown in help; empty for flags
  std::string help;                    // one or two sentences, no trailing newline
  std::string default_value;           // as a user would type it; empty: no default
  std::vector<std::string> choices{};  // for kChoice
  char letter = 0;                     // 'o' for -o; 0 for none
  // Returns the words that the completion offers for a kText, such as names of presets. For a kFile
  // it offers them in addition to file names. The function is called only to make the completion
  // script.
  std::function<std::vector<std::string>()> offered{};
  bool required = false;
  bool repeatable = false;           // may be given several times; each use adds a value
  std::int64_t minimum = INT64_MIN;  // for kInteger, and for each item of kIntegerList
  std::int64_t maximum = INT64_MAX;
  double least = -HUGE_VAL, most = HUGE_VAL;  // for kReal
};

struct Example {
  std::string command;  // a complete shell line
  std::string meaning;
};

// A tool without subcommands has one Command with an empty name. If such a command is the first of
// several, it is the default: it runs when the first argument is an option or absent. A default
// takes no positional arguments, because a mistyped command would look like one.
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

// Holds the checked values of one command line, so no getter fails because of a user's input. A
// getter throws std::logic_error for a programming error: the option is not in the table or has
// another type, or a getter of a single value is called for an option without a value (see has()).
class Options {
 public:
  const Command& command() const { return *command_; }
  const std::vector<std::string>& positional() const { return positional_; }

  // Returns true when the option is given on the command line (a default does not count).
  bool given(const std::string& name) const;
  // Returns true when there is a value, given or default.
  bool has(const std::string& name) const;

  // Throws UsageError for the first option of `names` that was given. In `where`, `what` and
  // `remedy`, {} stands for the name of this option.
  void refuse(const std::vector<std::string>& names, const std::string& where,
              const std::string& what, const std::string& remedy) const;

  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;  // kText, kFile, kFolder, kChoice
  // Returns the value that a kChoice names, if its choices are names of Value (base/strings.h).
  template <typename Value>
  Value choice(const std::string& name) const {
    return find_named<Value>(text(name)).value();
  }
  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  // Returns the items of all uses of a kIntegerList, or nothing if the option has no value.
  std::vector<std::int64_t> integers(const std::string& name) const;
  // Returns one text per use of a repeatable option, or nothing if the option has no value.
  std::vector<std::string> texts(const std::string& name) const;

  // Returns every option of the command that has a value, given or default, for provenance() of
  // base/provenance.h. Several values are joined by spaces. The options that all commands share are
  // left out.
  std::map<std::string, std::string> resolved() const;

 private:
  friend Options parse_options(const ToolTable& tool, const std::vector<std::string>& arguments);
  const Option& option(const std::string& name) const;
  // Returns the values given on the command line or, if there are none, the default.
  std::vector<std::string> values(const std::string& name) const;
  std::string single(const std::string& name) const;

  const Command* command_ = nullptr;
  std::vector<std::string> positional_;
  std::map<std::string, std::vector<std::string>> typed_;
};

// Parses `arguments`, which do not include the program's name. `tool` must outlive the result.
// Throws UsageError for a mistyped option, with the name of the nearest one, and for a wrong value,
// with the option and the allowed values. Parsing and rendering add the options that every command
// has (help, version, quiet, verbose).
Options parse_options(const ToolTable& tool, const std::vector<std::string>& arguments);

// Returns the text of --help for one command, or for the tool if `command` is null. The help of a
// tool is the help of its unnamed command, if it has one, and then the list of its named commands,
// if it has any.
std::string render_help(const ToolTable& tool, const Command* command);

// Returns the OPTIONS section of the tool's man page in mdoc(7) macros.
std::string render_man_options(const ToolTable& tool);

// Returns a bash completion script for the tool.
std::string render_bash_completion(const ToolTable& tool);

// These build the rows of an option table.

// The arguments are named after the members of Option that they set.
inline Option make_option(std::string name, OptionType type, std::string value_name,
                          std::string help, std::string default_value = "") {
  return {std::move(name), type, std::move(value_name), std::move(help), std::move(default_value)};
}

inline Option make_flag(std::string name, std::string help) {
  return make_option(std::move(name), OptionType::kFlag, "", std::move(help));
}

// The first of the choices is the default.
inline Option make_choice(std::string name, std::string value_name, std::string help,
                          const std::vector<std::string>& choices) {
  return {std::move(name), OptionType::kChoice, std::move(value_name),
          std::move(help), choices.front(),     choices};
}

// Makes an option of several whole numbers.
inline Option make_integers(std::string name, std::string value_name, std::string help,
                            std::string default_value = "", std::int64_t minimum = INT64_MIN,
                            std::int64_t maximum = INT64_MAX) {
  Option option = make_option(std::move(name), OptionType::kIntegerList, std::move(value_name),
                              std::move(help), std::move(default_value));
  option.minimum = minimum;
  option.maximum = maximum;
  return option;
}

// Makes an option of one integer, "N" in the help.
inline Option make_integer(std::string name, std::string help, std::string default_value = "",
                           std::int64_t minimum = INT64_MIN, std::int64_t maximum = INT64_MAX) {
  Option option = make_integers(std::move(name), "N", std::move(help), std::move(default_value),
                                minimum, maximum);
  option.type = OptionType::kInteger;
  return option;
}

// Makes an option of a real number.
inline Option make_real(std::string name, std::string value_name, std::string help,
                        std::string default_value, double least, double most) {
  Option option = make_option(std::move(name), OptionType::kReal, std::move(value_name),
                              std::move(help), std::move(default_value));
  option.least = least;
  option.most = most;
  return option;
}

inline Option required(Option option) {
  option.required = true;
  return option;
}

inline Option repeatable(Option option) {
  option.repeatable = true;
  return option;
}

inline Option without_default(Option option) {
  option.default_value.clear();
  return option;
}

// `words` returns the words that the completion offers.
inline Option offering(std::function<std::vector<std::string>()> words, Option option) {
  option.offered = std::move(words);
  return option;
}

inline Option with_letter(char letter, Option option) {
  option.letter = letter;
  return option;
}

inline std::vector<Option> joined(std::vector<Option> options, const std::vector<Option>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

}  // namespace ql

namespace ql::internal {

// Only options.cpp, options_parse.cpp, options_render.cpp and tool.cpp use these.

// Returns --help, --version, --quiet and --verbose, which every command has.
const std::vector<Option>& common_options();

// Returns the command's own options followed by the common ones.
std::vector<const Option*> all_options(const Command& command);

// Returns true when the tool has commands with names, among which the first argument chooses.
bool has_named_commands(const ToolTable& tool);

// Returns the command that needs no name (the only one, or the default of several), or null.
const Command* default_command(const ToolTable& tool);

// Returns "qlbin pack", or the tool's name alone ("qltrain") for an unnamed command.
std::string full_name(const ToolTable& tool, const Command& command);

// Returns the name that help shows for the option's value, such as "DIR", or "" for a flag.
std::string option_value(const Option& option);

}  // namespace ql::internal
