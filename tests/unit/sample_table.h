// Has tools with every kind of option, for the tests of the option table.
#pragma once

#include "base/options.h"

namespace ql::test {

inline Option make_option(const std::string& name, char letter, OptionType type,
                          const std::string& value_name, const std::string& help,
                          const std::string& default_value = "") {
  Option option;
  option.name = name;
  option.letter = letter;
  option.type = type;
  option.value_name = value_name;
  option.help = help;
  option.default_value = default_value;
  return option;
}

inline const ToolTable& sample_table() {
  static const ToolTable table = [] {
    Command pack;
    pack.name = "pack";
    pack.summary = "write a token stream as shards";
    pack.positional = "[FILE...|-]";
    Option output = make_option("output", 'o', OptionType::kFolder, "DIR", "Folder to write.");
    output.required = true;
    Option frame = make_option("frame-tokens", 0, OptionType::kInteger, "N",
                               "Tokens per frame. A power of two is best.", "64Ki");
    frame.minimum = 1;
    frame.maximum = 1 << 20;
    Option input = make_option("input", 0, OptionType::kChoice, "TYPE", "What to read.", "stream");
    input.choices = {"stream", "ids", "u16"};
    Option set = make_option("set", 's', OptionType::kText, "KEY=VALUE", "Change a setting.");
    set.repeatable = true;
    Option lengths =
        make_option("lengths", 0, OptionType::kIntegerList, "N,...", "Lengths.", "4,8");
    lengths.minimum = 0;
    Option force = make_option("force", 'f', OptionType::kFlag, "", "Replace what is there.");
    pack.options = {output,
                    frame,
                    input,
                    set,
                    lengths,
                    make_option("rate", 'r', OptionType::kReal, "X", "A rate.", "0.5"),
                    make_option("vocab", 0, OptionType::kFile, "FILE", "Vocabulary."),
                    force};
    pack.examples = {{"qlbox pack -o data < tokens", "Pack a stream"}};
    Command info;
    info.name = "info";
    info.summary = "describe shards";
    info.positional = "MANIFEST...";
    return ToolTable{"qlbox", "a tool for tests", {pack, info}};
  }();
  return table;
}

// Returns a tool without named commands.
inline const ToolTable& plain_table() {
  static const ToolTable table = [] {
    Command only;
    only.positional = "INPUT [OUTPUT]";
    only.options = {make_option("level", 'l', OptionType::kInteger, "N",
                                R"(Level; 'low' \ "high". .5 is not a level.)", "3")};
    return ToolTable{"qlone", "one thing well done", {only}};
  }();
  return table;
}

// Returns a tool with a default command and one with a name.
inline const ToolTable& mixed_table() {
  static const ToolTable table = [] {
    Command unnamed;
    unnamed.summary = "look at boxes";
    unnamed.options = {make_option("level", 'l', OptionType::kInteger, "N", "Level.", "3")};
    Command plan;
    plan.name = "plan";
    plan.summary = "plan a box";
    plan.options = {make_option("size", 0, OptionType::kInteger, "N", "Size.")};
    plan.examples = {{"qltwo plan --size 3", "Plan a small box"}};
    return ToolTable{"qltwo", "boxes", {unnamed, plan}};
  }();
  return table;
}

}  // namespace ql::test
