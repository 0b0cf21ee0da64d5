// The OPTIONS section of a man page in mdoc(7).
#include <fmt/format.h>

#include <algorithm>

#include "base/number.h"
#include "base/options.h"
#include "base/options_internal.h"

namespace ql {

namespace {

constexpr std::size_t kSourceWidth = 78;

std::string replace_all(const std::string& text, char letter, const char* by) {
  return fmt::format("{}", fmt::join(split(text, letter), by));
}

// Backslashes start an escape in mdoc.
std::string escape(const std::string& text) { return replace_all(text, '\\', "\\e"); }

// Leading dashes belong to an option and must stay dashes, not hyphens.
std::string escape_word(const std::string& word) {
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  return replace_all(word.substr(0, dashes), '-', "\\-") + escape(word.substr(dashes));
}

// One argument of a macro: quoted, and never taken for a macro itself.
std::string argument(const std::string& text) {
  const std::string quoted = replace_all(escape(text), '"', "\\(dq");
  const bool plain = text.find(' ') == std::string::npos;
  return plain ? "\\&" + quoted : "\"" + quoted + "\"";
}

bool ends_sentence(const std::string& word) {
  return word.size() > 1 && (word.back() == '.' || word.back() == '?' || word.back() == '!') &&
         word != "e.g." && word != "i.e.";
}

// Text lines: every sentence begins a line, as mdoc asks, and no line looks like a macro.
std::string text_lines(const std::string& text) {
  std::string lines, line;
  const auto finish_line = [&] {
    if (line.empty()) return;
    if (line[0] == '.' || line[0] == '\'') line.insert(0, "\\&");
    lines += line + "\n";
    line.clear();
  };
  for (const std::string& word : internal::wrap(text, 1)) {
    const std::string escaped = escape_word(word);
    if (!line.empty() && line.size() + 1 + escaped.size() > kSourceWidth) finish_line();
    line += line.empty() ? escaped : " " + escaped;
    if (ends_sentence(word)) finish_line();
  }
  finish_line();
  return lines;
}

std::string option_item(const Option& option) {
  std::string item = ".It ";
  if (option.letter != 0) item += fmt::format("Fl {} , ", option.letter);
  item += "Fl \\-" + option.name;
  const std::string value = internal::option_value(option);
  if (!value.empty()) item += " Ar " + argument(value);
  item += "\n";
  for (const std::string& text : internal::option_sentences(option)) item += text_lines(text);
  return item;
}

std::string option_list(const std::vector<Option>& options) {
  if (options.empty()) return "";
  std::string list = ".Bl -tag -width Ds\n";
  for (const Option& option : options) list += option_item(option);
  return list + ".El\n";
}

}  // namespace

std::string render_man_options(const ToolTable& tool) {
  if (!internal::has_named_commands(tool)) {
    std::vector<Option> all;
    for (const Option* option : internal::all_options(tool.commands.front())) {
      all.push_back(*option);
    }
    return option_list(all);
  }
  std::string page;
  for (const Command& command : tool.commands) {
    page += fmt::format(".Ss {}\n", internal::full_name(tool, command));
    page += text_lines(internal::sentence(command.summary));
    page += option_list(command.options);
  }
  page += ".Ss All commands\n";
  return page + option_list(internal::common_options());
}

}  // namespace ql
