// A bash completion script: one self-contained function per tool.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/options.h"
#include "base/options_internal.h"

namespace ql {

namespace {

// The words to offer after an option, as the arguments of compgen; "" offers nothing.
std::string completion_of(const Option& option) {
  std::string files = option.type == OptionType::kFile     ? "-f"
                      : option.type == OptionType::kFolder ? "-d"
                                                           : "";
  std::vector<std::string> words = option.offered ? option.offered() : option.choices;
  // The shell would read anything else in them.
  const auto is_plain = [](const std::string& word) {
    return std::all_of(word.begin(), word.end(), [](unsigned char letter) {
      return std::isalnum(letter) != 0 || std::strchr("-_.=", letter) != nullptr;
    });
  };
  words.erase(std::stable_partition(words.begin(), words.end(), is_plain), words.end());
  if (words.empty()) return files;
  return fmt::format("{}{}-W '{}'", files, files.empty() ? "" : " ", fmt::join(words, " "));
}

// "pack:--output|pack:-o": the pattern that finds an option after its command.
std::string pattern(const Command& command, const Option& option) {
  std::string text = fmt::format("'{}:--{}'", command.name, option.name);
  if (option.letter != 0) text += fmt::format(" | '{}:-{}'", command.name, option.letter);
  return text;
}

std::string option_names(const Command& command) {
  std::string names;
  for (const Option* option : internal::all_options(command)) names += "--" + option->name + " ";
  names.pop_back();
  return names;
}

std::string value_cases(const ToolTable& tool) {
  std::string cases;
  for (const Command& command : tool.commands) {
    for (const Option& option : command.options) {
      if (option.type == OptionType::kFlag) continue;
      const std::string words = completion_of(option);
      cases += fmt::format("    {})\n      {}\n      return ;;\n", pattern(command, option),
                           words.empty() ? ":" : fmt::format("_{}_offer {}", tool.name, words));
    }
  }
  return cases;
}

std::string word_cases(const ToolTable& tool) {
  std::string cases;
  for (const Command& command : tool.commands) {
    cases += fmt::format("    '{}:option') _{}_offer -W '{}' ;;\n", command.name, tool.name,
                         option_names(command));
    if (!command.positional.empty()) {
      cases += fmt::format("    '{}:argument') _{}_offer -f ;;\n", command.name, tool.name);
    }
  }
  return cases;
}

std::string command_choice(const ToolTable& tool) {
  if (!internal::has_named_commands(tool)) return "  local command=''\n";
  std::string names;
  for (const Command& command : tool.commands) {
    if (!command.name.empty()) names += command.name + " ";
  }
  std::string options = "--help --version";
  std::string choice = "  local command=${COMP_WORDS[1]-}\n";
  if (const Command* unnamed = internal::default_command(tool)) {
    options = option_names(*unnamed);
    choice += "  case $command in -*) command='' ;; esac\n";
  }
  return choice + fmt::format(
                      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                      "    _{}_offer -W '{}{}'\n"
                      "    return\n"
                      "  fi\n",
                      tool.name, names, options);
}

}  // namespace

std::string render_bash_completion(const ToolTable& tool) {
  return fmt::format(
      "# bash completion for {0}; made by '{0} --bash-completion'\n"
      "_{0}_offer() {{\n"
      "  mapfile -t COMPREPLY < <(compgen \"$@\" -- \"$current\")\n"
      "  case $1 in -f | -d) compopt -o filenames 2>/dev/null ;; esac\n"
      "  case ${{COMPREPLY[0]-}} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
      "}}\n"
      "_{0}() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]-}} previous=${{COMP_WORDS[COMP_CWORD-1]-}}\n"
      "  COMPREPLY=()\n"
      "  # readline takes --name=value for three words\n"
      "  if [ \"$current\" = '=' ]; then\n"
      "    current=''\n"
      "  elif [ \"$previous\" = '=' ] && [ \"$COMP_CWORD\" -ge 2 ]; then\n"
      "    previous=${{COMP_WORDS[COMP_CWORD-2]}}\n"
      "  fi\n"
      "{1}"
      "  case $command:$previous in\n"
      "{2}"
      "    *) ;;\n"
      "  esac\n"
      "  local kind=argument\n"
      "  case $current in -*) kind=option ;; esac\n"
      "  case $command:$kind in\n"
      "{3}"
      "    *) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -F _{0} {0}\n",
      tool.name, command_choice(tool), value_cases(tool), word_cases(tool));
}

}  // namespace ql
