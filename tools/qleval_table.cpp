#include "qleval_table.h"

namespace {

using ql::Option;
using ql::OptionType;

constexpr std::int64_t kLongest = std::int64_t{1} << 30;

Option folder(const std::string& name, const std::string& value_name, const std::string& help) {
  Option option;
  option.name = name;
  option.type = OptionType::kFolder;
  option.value_name = value_name;
  option.help = help;
  return option;
}

Option model() {
  Option option =
      folder("model", "CHECKPOINT", "Folder with model.json and model.safetensors to evaluate.");
  option.letter = 'm';
  option.repeatable = true;
  return option;
}

Option data() {
  Option option = folder("data", "DIR",
                         "Packed data (qlbin pack) to score, or - for a token stream (qltok "
                         "encode) on standard input.");
  option.required = true;
  option.repeatable = true;
  return option;
}

Option per_token() {
  Option option;
  option.name = "per-token";
  option.type = OptionType::kFile;
  option.value_name = "FILE";
  option.help =
      "Write the loss of every target: little-endian float32, natural logarithm, in stream order. "
      "With - they go to standard output and the table to standard error. Only for a call of a "
      "single row.";
  return option;
}

Option format() {
  Option option;
  option.name = "format";
  option.type = OptionType::kChoice;
  option.value_name = "FORMAT";
  option.help = "tsv: a table with a header line. json: a list of objects.";
  option.choices = {"tsv", "json"};
  option.default_value = "tsv";
  return option;
}

Option lengths(const std::string& name, std::int64_t minimum, const std::string& help) {
  Option option;
  option.name = name;
  option.type = OptionType::kIntegerList;
  option.value_name = "N,...";
  option.help = help;
  option.minimum = minimum;
  option.maximum = kLongest;
  return option;
}

Option number(const std::string& name, std::int64_t maximum, const std::string& help) {
  Option option;
  option.name = name;
  option.type = OptionType::kInteger;
  option.value_name = "N";
  option.help = help;
  option.default_value = "0";
  option.minimum = 0;
  option.maximum = maximum;
  return option;
}

ql::Command command() {
  ql::Command all;
  all.options = {
      model(),
      data(),
      lengths("segment", 1, "Segment lengths in tokens; default: the one trained with."),
      lengths("memory", 0, "Memory lengths in states; default: the one trained with."),
      lengths("compressed-memory", 0,
              "Compressed memory lengths of a Compressive Transformer; default: the one trained "
              "with."),
      folder("unigram", "DIR",
             "Also score a unigram model of this training data (or - for a token stream), the "
             "baseline to beat."),
      per_token(),
      format(),
      number("batch", 1 << 14,
             "Columns of the stream to read side by side, at most: a matter of speed and memory, "
             "not of the result. 0 chooses."),
      number("threads", 1024, "Threads; 0 uses every core this process may use.")};
  all.examples = {
      {"qleval -m runs/ql/best --data data/test",
       "the test perplexity with the lengths of training"},
      {"qleval -m runs/ql/best -m runs/xl/best --data data/test --segment 4,8 --memory 12,24",
       "two models, four pairs of lengths each"},
      {"qltok encode --vocab v.json new.txt | qleval -m runs/ql/best --data -",
       "score a text without packing it"},
      {"qleval --unigram data/train --data data/test", "the baseline alone"},
      {"qleval -m runs/ql/best --data data/test --per-token - | od -f -An -v -w4",
       "the loss of every token, one a line"}};
  return all;
}

}  // namespace

const ql::ToolTable& qleval_table() {
  static const ql::ToolTable kTable{
      "qleval",
      "perplexity of language models: every target scored once, in one unbroken stream",
      {command()}};
  return kTable;
}
