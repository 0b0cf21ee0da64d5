#include "qleval_table.h"

#include "base/common_options.h"
#include "nn/precision.h"

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
  option.repeatable = true;
  return option;
}

Option per() {
  Option option;
  option.name = "per";
  option.type = OptionType::kChoice;
  option.value_name = "UNIT";
  option.help =
      "Print the loss of every line, doubled-line (from <eos> to <eos>) or document as soon as it "
      "is known, and the table on standard error. Only for a call of a single row.";
  option.choices = {"line", "doubled-line", "document"};
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
  option.help =
      "tsv: a table with a header line. json: a list of objects; with --per one object a line.";
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

Option method() {
  Option option;
  option.name = "method";
  option.type = OptionType::kChoice;
  option.value_name = "METHOD";
  option.help =
      "layerwise: long chunks of the stream go through layer after layer. stepwise: segment after "
      "segment goes through all layers, as in training. The losses are the same.";
  option.choices = {"layerwise", "stepwise"};
  option.default_value = "layerwise";
  return option;
}

Option number(const std::string& name, const std::string& default_value, std::int64_t minimum,
              std::int64_t maximum, const std::string& help) {
  Option option;
  option.name = name;
  option.type = OptionType::kInteger;
  option.value_name = "N";
  option.help = help;
  option.default_value = default_value;
  option.minimum = minimum;
  option.maximum = maximum;
  return option;
}

Option device() {
  Option option;
  option.name = "device";
  option.type = OptionType::kText;
  option.value_name = "DEVICE";
  option.help =
      "Where to compute: cpu, cuda (the first GPU; for several processes one each) or cuda:N.";
  option.default_value = "cpu";
  return option;
}

Option precision() {
  Option option;
  option.name = "precision";
  option.type = OptionType::kChoice;
  option.value_name = "PRECISION";
  option.help =
      "Of matrix products, whatever the network was trained with. All but float32 need a GPU, and "
      "change the last digits of the losses.";
  option.choices = ql::all_names<ql::nn::Precision>();
  option.default_value = "float32";
  return option;
}

ql::Command command() {
  ql::Command all;
  all.positional = "[DIR...|-]";
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
      per(),
      per_token(),
      format(),
      method(),
      number("chunk", "0", 0, kLongest,
             "Tokens that go through a layer at once, layer by layer: a matter of speed and "
             "memory, not of the result. 0 chooses by the memory there is."),
      number("batch", "1", 1, 1 << 14,
             "Columns of the stream to read side by side, at most, step by step. Each is warmed by "
             "the context length, so that the result is the same."),
      ql::threads_option(
          "With several processes N is for each, and 0 divides the cores of a machine among them."),
      number("processes", "1", 1, 1024,
             "Processes on this machine that each read a part of the stream. "
             "torchrun, mpirun and srun start them instead, also on several machines."),
      ql::timeout_option(),
      device(),
      precision()};
  all.examples = {
      {"qleval -m runs/ql/best --data data/test",
       "the test perplexity with the lengths of training"},
      {"qleval -m runs/ql/best -m runs/xl/best --data data/test --segment 4,8 --memory 12,24",
       "two models, four pairs of lengths each"},
      {"qltok encode --vocab v.json new.txt | qleval -m runs/ql/best -",
       "score a text without packing it"},
      {"qltok encode --vocab v.json new.txt | qleval -m runs/ql/best - --per line",
       "the perplexity of every line, as it comes"},
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
