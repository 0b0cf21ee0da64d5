// Splits a command line into options and texts with cxxopts, and puts its errors into our words.

// cxxopts would split values at commas, and std::regex overflows the stack on long arguments.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#define CXXOPTS_NO_REGEX
#include <fmt/format.h>

#include <algorithm>
#include <cxxopts.hpp>
#include <stdexcept>
#include <utility>

#include "base/options_internal.h"

namespace ql::internal {

namespace {

using OptionList = std::vector<const Option*>;

// cxxopts stores this for a flag. No user types it, so --quiet=yes can be told from --quiet.
constexpr const char* kFlagMark = "\001";

cxxopts::Options declare(const OptionList& options) {
  cxxopts::Options parser("");
  for (const Option* option : options) {
    auto value = cxxopts::value<std::string>();
    if (option->type == OptionType::kFlag) value->implicit_value(kFlagMark);
    const std::string names =
        option->letter == 0 ? option->name : fmt::format("{},{}", option->letter, option->name);
    try {
      if (option->name.size() < 2) throw std::logic_error("option table: a name is too short");
      parser.add_options()(names, "", value);
    } catch (const cxxopts::exceptions::specification& error) {
      throw std::logic_error(fmt::format("option table: {}", error.what()));
    }
  }
  return parser;
}

// Returns the text between the typographic quotes of a cxxopts message.
std::string quoted(const std::string& message) {
  const std::size_t begin = message.find(cxxopts::LQUOTE) + cxxopts::LQUOTE.size();
  return message.substr(begin, message.rfind(cxxopts::RQUOTE) - begin);
}

std::string with_dashes(const std::string& name) { return (name.size() == 1 ? "-" : "--") + name; }

[[noreturn]] void raise_unknown(const std::string& typed, const OptionList& options,
                                const Complaint& complaint) {
  const std::string name = typed.substr(0, typed.find('='));
  complaint.raise("unknown option " + name, nearest_option(name, options));
}

// The option called --NAME, -LETTER when `name` is one letter, or nothing.
const Option* find_option(const OptionList& options, const std::string& name) {
  const auto same = [&](const Option* option) {
    return name == option->name || (name.size() == 1 && name[0] == option->letter);
  };
  const auto found = std::find_if(options.begin(), options.end(), same);
  return found == options.end() ? nullptr : *found;
}

bool takes_value(const Option* option) {
  return option != nullptr && option->type != OptionType::kFlag;
}

// In "-o --force" the value was forgotten; "--output=--force" is for who means it.
void refuse_option_as_value(const std::string& argument, const std::string& before,
                            const OptionList& options, const Complaint& complaint) {
  if (argument.rfind("--", 0) != 0) return;
  const std::string name = argument.substr(2, argument.find('=') - 2);
  if (name.size() < 2 || find_option(options, name) == nullptr) return;
  complaint.raise(fmt::format("option {} needs a value, found the option --{}", before, name));
}

// "-foa/b" becomes "-fo" "a/b": of values behind their letter cxxopts knows only letters and
// digits. Arguments that are themselves values are left alone.
std::vector<std::string> separate_values(const std::vector<std::string>& arguments,
                                         const OptionList& options, const Complaint& complaint) {
  std::vector<std::string> separated;
  bool is_value = false;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    const std::string& argument = *at;
    if (is_value) refuse_option_as_value(argument, *(at - 1), options, complaint);
    separated.push_back(argument);
    if (std::exchange(is_value, false) || argument.size() < 2 || argument[0] != '-') continue;
    if (argument == "--") {
      separated.insert(separated.end(), at + 1, arguments.end());
      break;
    }
    if (argument[1] == '-') {
      is_value = argument.size() > 3 && takes_value(find_option(options, argument.substr(2)));
      continue;
    }
    std::size_t letter = 1;
    while (letter < argument.size() &&
           !takes_value(find_option(options, argument.substr(letter, 1)))) {
      ++letter;
    }
    if (letter + 1 < argument.size()) {
      separated.back() = argument.substr(0, letter + 1);
      separated.push_back(argument.substr(letter + 1));
    } else {
      is_value = letter + 1 == argument.size();
    }
  }
  return separated;
}

cxxopts::ParseResult parse_with_cxxopts(cxxopts::Options& parser,
                                        const std::vector<std::string>& arguments,
                                        const OptionList& options, const Complaint& complaint) {
  std::vector<const char*> pointers = {""};
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  try {
    return parser.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const cxxopts::exceptions::no_such_option& error) {
    raise_unknown(with_dashes(quoted(error.what())), options, complaint);
  } catch (const cxxopts::exceptions::missing_argument& error) {
    complaint.raise(fmt::format("option {} needs a value", with_dashes(quoted(error.what()))));
  } catch (const cxxopts::exceptions::invalid_option_syntax& error) {
    raise_unknown(quoted(error.what()), options, complaint);
  } catch (const cxxopts::exceptions::exception& error) {
    complaint.raise(error.what());
  }
}

}  // namespace

SplitLine split_line(const std::vector<std::string>& arguments, const OptionList& options,
                     const Complaint& complaint) {
  cxxopts::Options parser = declare(options);
  const auto parsed = parse_with_cxxopts(parser, separate_values(arguments, options, complaint),
                                         options, complaint);
  SplitLine line;
  line.positional = parsed.unmatched();
  for (const cxxopts::KeyValue& pair : parsed.arguments()) {
    const Option& option = *find_option(options, pair.key());
    const bool flag = option.type == OptionType::kFlag;
    if (flag && pair.value() != kFlagMark) {
      complaint.raise(
          fmt::format("option --{} takes no value, found '{}'", option.name, pair.value()));
    }
    line.uses.emplace_back(&option, flag ? "true" : pair.value());
  }
  return line;
}

}  // namespace ql::internal
