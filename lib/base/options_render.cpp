// Renders a tool's option table as --help, as a man page's OPTIONS and as a bash completion.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/options.h"
#include "base/strings.h"

namespace ql {

using namespace internal;

constexpr std::size_t kWidth = 80;
constexpr std::size_t kHelpColumn = 26;

// Returns a summary as a sentence: "say hello" -> "Say hello.".
static std::string sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.back() == '.' ? text : text + ".";
}

// Breaks `text` at spaces so that no line is wider than `width`. A longer word is not cut.
static std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

// Returns `option.help`, and a sentence for each other property of the option that --help shows.
static std::vector<std::string> option_sentences(const Option& option) {
  std::vector<std::string> sentences{option.help};
  if (!option.choices.empty()) {
    sentences.push_back(fmt::format("One of {}.", fmt::join(option.choices, ", ")));
  }
  if (option.repeatable) sentences.emplace_back("May be given several times.");
  if (option.required) sentences.emplace_back("Required.");
  if (!option.default_value.empty()) {
    sentences.push_back(fmt::format("Default: {}.", option.default_value));
  }
  return sentences;
}

static void append_wrapped(std::string& out, const std::string& first, const std::string& text,
                           std::size_t indent) {
  out += first;
  std::size_t column = first.size();
  if (column >= indent && !text.empty()) {
    out += '\n';
    column = 0;
  }
  for (const std::string& line : wrap(text, kWidth - indent)) {
    out += std::string(indent - column, ' ') + line + "\n";
    column = 0;
  }
  if (text.empty()) out += '\n';
}

static std::string paragraph(const std::string& summary) {
  return fmt::format("{}\n", fmt::join(wrap(sentence(summary), kWidth), "\n"));
}

static void append_option(std::string& out, const Option& option) {
  const std::string letter =
      option.letter == 0 ? std::string("    ") : fmt::format("-{}, ", option.letter);
  std::string first = fmt::format("  {}--{}", letter, option.name);
  const std::string value = option_value(option);
  if (!value.empty()) first += " " + value;
  append_wrapped(out, first, fmt::format("{}", fmt::join(option_sentences(option), " ")),
                 kHelpColumn);
}

static std::string usage(const ToolTable& tool, const Command& command) {
  std::string line = full_name(tool, command);
  for (const Option& option : command.options) {
    if (option.required) {
      line += fmt::format(" --{} {}", option.name, option_value(option));
    }
  }
  line += " [OPTION...]";
  if (!command.positional.empty()) line += " " + command.positional;
  return line;
}

// Returns a shell line, continued by backslashes where it would be too wide. The lines break only
// between words of the shell, and never inside quotes.
static std::string shell_lines(const std::string& command) {
  constexpr std::size_t kIndent = 4, kFurtherIndent = 8;
  std::vector<std::string> words(1);
  char quote = 0;
  for (const char letter : command) {
    if (letter == ' ' && quote == 0) {
      words.emplace_back();
      continue;
    }
    words.back() += letter;
    if (quote == letter) {
      quote = 0;
    } else if (quote == 0 && (letter == '\'' || letter == '"')) {
      quote = letter;
    }
  }
  std::string out, line(kIndent, ' ');
  line += words.front();
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t continued = i + 1 < words.size() ? std::strlen(" \\") : 0;
    if (line.size() + 1 + words[i].size() + continued > kWidth) {
      out += line + " \\\n";
      line.assign(kFurtherIndent, ' ');
      line += words[i];
    } else {
      line += " " + words[i];
    }
  }
  return out + line + "\n";
}

static std::string command_help(const ToolTable& tool, const Command& command) {
  std::string out;
  append_wrapped(out, "Usage:", usage(tool, command), 7);
  out += "\n" + paragraph(command.summary.empty() ? tool.summary : command.summary);
  out += "\nOptions:\n";
  for (const Option* option : all_options(command)) append_option(out, *option);
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const Example& example : command.examples) {
    append_wrapped(out, "", example.meaning + ":", 2);
    out += shell_lines(example.command);
  }
  return out;
}

static void append_commands(std::string& out, const ToolTable& tool) {
  out += "\nCommands:\n";
  for (const Command& command : tool.commands) {
    if (!command.name.empty()) append_wrapped(out, "  " + command.name, command.summary, 14);
  }
  out += fmt::format("\n'{} COMMAND --help' describes a command and its options.\n", tool.name);
}

static std::string tool_help(const ToolTable& tool) {
  std::string out = fmt::format("Usage: {} COMMAND [OPTION...] [ARGUMENT...]\n\n{}", tool.name,
                                paragraph(tool.summary));
  append_commands(out, tool);
  return out;
}

std::string render_help(const ToolTable& tool, const Command* command) {
  if (command == nullptr) command = default_command(tool);
  if (command == nullptr) return tool_help(tool);
  std::string out = command_help(tool, *command);
  if (command->name.empty() && has_named_commands(tool)) append_commands(out, tool);
  return out;
}

// The OPTIONS section of a man page is written in mdoc(7) macros.

constexpr std::size_t kSourceWidth = 78;

// Backslashes start an escape in mdoc.
static std::string escape(const std::string& text) { return replaced(text, "\\", "\\e"); }

// An option's leading dashes must stay dashes: mdoc would print hyphens.
static std::string escape_word(const std::string& word) {
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  return replaced(word.substr(0, dashes), "-", "\\-") + escape(word.substr(dashes));
}

// Returns `text` as one argument of a macro, in a form that mdoc does not take for a macro.
static std::string argument(const std::string& text) {
  const std::string quoted = replaced(escape(text), "\"", "\\(dq");
  const bool plain = text.find(' ') == std::string::npos;
  return plain ? "\\&" + quoted : "\"" + quoted + "\"";
}

static bool ends_sentence(const std::string& word) {
  return word.size() > 1 && (word.back() == '.' || word.back() == '?' || word.back() == '!') &&
         word != "e.g." && word != "i.e.";
}

// Returns the text in lines. Every sentence begins a new line, as mdoc requires, and no line looks
// like a macro.
static std::string text_lines(const std::string& text) {
  std::string lines, line;
  const auto finish_line = [&] {
    if (line.empty()) return;
    if (line[0] == '.' || line[0] == '\'') line.insert(0, "\\&");
    lines += line + "\n";
    line.clear();
  };
  for (const std::string& word : wrap(text, 1)) {
    const std::string escaped = escape_word(word);
    if (!line.empty() && line.size() + 1 + escaped.size() > kSourceWidth) finish_line();
    line += line.empty() ? escaped : " " + escaped;
    if (ends_sentence(word)) finish_line();
  }
  finish_line();
  return lines;
}

static std::string option_item(const Option& option) {
  std::string item = ".It ";
  if (option.letter != 0) item += fmt::format("Fl {} , ", option.letter);
  item += "Fl \\-" + option.name;
  const std::string value = option_value(option);
  if (!value.empty()) item += " Ar " + argument(value);
  item += "\n";
  for (const std::string& text : option_sentences(option)) item += text_lines(text);
  return item;
}

static std::string option_list(const std::vector<Option>& options) {
  if (options.empty()) return "";
  std::string list = ".Bl -tag -width Ds\n";
  for (const Option& option : options) list += option_item(option);
  return list + ".El\n";
}

std::string render_man_options(const ToolTable& tool) {
  if (!has_named_commands(tool)) {
    return option_list(joined(tool.commands.front().options, common_options()));
  }
  std::string page;
  for (const Command& command : tool.commands) {
    page += fmt::format(".Ss {}\n", full_name(tool, command));
    page += text_lines(sentence(command.summary));
    page += option_list(command.options);
  }
  page += ".Ss All commands\n";
  return page + option_list(common_options());
}

// The bash completion script of a tool has three functions and needs no other script.

// Returns the words to offer after an option, as arguments of compgen; "" offers nothing.
static std::string completion_of(const Option& option) {
  std::string files = option.type == OptionType::kFile     ? "-f"
                      : option.type == OptionType::kFolder ? "-d"
                                                           : "";
  std::vector<std::string> words = option.offered ? option.offered() : option.choices;
  // Small letters in a name such as "ID|TOKEN|line" stand for themselves.
  for (const std::string& name : split(option.value_name, '|')) {
    const bool literal = std::all_of(name.begin(), name.end(), [](unsigned char letter) {
      return std::islower(letter) != 0 || letter == '-';
    });
    if (literal && !name.empty()) words.push_back(name);
  }
  // Words that are not plain are left out, because the shell would expand them.
  const auto is_plain = [](const std::string& word) {
    return std::all_of(word.begin(), word.end(), [](unsigned char letter) {
      return std::isalnum(letter) != 0 || std::strchr("-_.=", letter) != nullptr;
    });
  };
  words.erase(std::stable_partition(words.begin(), words.end(), is_plain), words.end());
  if (words.empty()) return files;
  return fmt::format("{}{}-W '{}'", files, files.empty() ? "" : " ", fmt::join(words, " "));
}

// Returns the pattern that matches an option after its command: "'pack:--output' | 'pack:-o'".
static std::string pattern(const Command& command, const Option& option) {
  std::string text = fmt::format("'{}:--{}'", command.name, option.name);
  if (option.letter != 0) text += fmt::format(" | '{}:-{}'", command.name, option.letter);
  return text;
}

static std::string option_names(const Command& command) {
  std::string names;
  for (const Option* option : all_options(command)) names += "--" + option->name + " ";
  names.pop_back();
  return names;
}

// Returns true if the value is a list of offered words: its name is like "NAME,...".
static bool takes_list(const Option& option) {
  return option.type == OptionType::kText && option.value_name.find(",...") != std::string::npos;
}

static std::string value_cases(const ToolTable& tool) {
  std::string cases;
  for (const Command& command : tool.commands) {
    for (const Option& option : command.options) {
      if (option.type == OptionType::kFlag) continue;
      const std::string words = completion_of(option);
      cases += fmt::format(
          "    {})\n      {}\n      return ;;\n", pattern(command, option),
          words.empty()
              ? ":"
              : fmt::format("_{}_{} {}", tool.name, takes_list(option) ? "list" : "offer", words));
    }
  }
  return cases;
}

static std::string word_cases(const ToolTable& tool) {
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

static std::string command_choice(const ToolTable& tool) {
  if (!has_named_commands(tool)) return "  local command=''\n";
  std::string names;
  for (const Command& command : tool.commands) {
    if (!command.name.empty()) names += command.name + " ";
  }
  std::string options = "--help --version";
  std::string choice = "  local command=${COMP_WORDS[1]-}\n";
  if (const Command* unnamed = default_command(tool)) {
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

std::string render_bash_completion(const ToolTable& tool) {
  return fmt::format(
      "# bash completion for {0}; made by '{0} --bash-completion'\n"
      "_{0}_offer() {{\n"
      "  mapfile -t COMPREPLY < <(compgen \"$@\" -- \"$current\")\n"
      "  case $1 in -f | -d) compopt -o filenames 2>/dev/null ;; esac\n"
      "  case ${{COMPREPLY[0]-}} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
      "}}\n"
      "# the last item of a list\n"
      "_{0}_list() {{\n"
      "  local before=${{current%\"${{current##*,}}\"}}\n"
      "  current=${{current##*,}}\n"
      "  _{0}_offer -P \"$before\" \"$@\"\n"
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
      "{1}  case $command:$previous in\n"
      "{2}    *) ;;\n"
      "  esac\n"
      "  local kind=argument\n"
      "  case $current in -*) kind=option ;; esac\n"
      "  case $command:$kind in\n"
      "{3}    *) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -F _{0} {0}\n",
      tool.name, command_choice(tool), value_cases(tool), word_cases(tool));
}

}  // namespace ql
