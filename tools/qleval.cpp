// qleval: perplexity of checkpoints on packed data or a token stream.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/tool.h"
#include "eval/report.h"
#include "eval/study.h"
#include "nn/threads.h"

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
  option.help = "tsv: a table with a header line. json: one object a line.";
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
      number("batch", 1 << 20,
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

ql::eval::StudyOptions study_options(const ql::Options& options) {
  ql::eval::StudyOptions study;
  study.checkpoints = options.texts("model");
  study.data = options.texts("data");
  if (options.has("unigram")) {
    study.unigram = options.text("unigram");
  }
  const auto list = [&options](const std::string& name) {
    return options.has(name) ? options.integers(name) : std::vector<std::int64_t>{};
  };
  study.segments = list("segment");
  study.memories = list("memory");
  study.compressed_memories = list("compressed-memory");
  study.batch = options.integer("batch");
  if (options.has("per-token")) {
    study.loss_file = options.text("per-token");
  }
  return study;
}

void check(const ql::eval::StudyOptions& study) {
  if (study.checkpoints.empty() && !study.unigram) {
    throw ql::UsageError("", "nothing to evaluate", "give --model CHECKPOINT or --unigram DIR");
  }
  const auto streams = std::count(study.data.begin(), study.data.end(), "-");
  if (streams + (study.unigram == "-" ? 1 : 0) > 1) {
    throw ql::UsageError("--data", "standard input can be read only once");
  }
}

void evaluate(const ql::Options& options) {
  const ql::eval::StudyOptions study = study_options(options);
  check(study);
  if (!study.checkpoints.empty()) {
    ql::nn::set_up_threads(static_cast<int>(options.integer("threads")));
  }

  std::optional<ql::OutputStream> out;
  if (study.loss_file != "-") {
    out.emplace(/*binary=*/false);
  }
  const auto print = [&out](const std::string& text) {
    if (out) {
      out->write(text);
      out->flush();
    } else {
      std::fputs(text.c_str(), stderr);
    }
  };
  const bool json = options.text("format") == "json";
  bool first = true;
  ql::eval::run_study(study, [&](const ql::Json& row) {
    if (json) {
      print(row.dump() + "\n");
    } else {
      print((first ? ql::eval::tsv_header(row) : "") + ql::eval::tsv_line(row));
    }
    first = false;
  });
  if (out) {
    out->close();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ql::ToolTable table{
      "qleval",
      "perplexity of language models: every target scored once, in one unbroken stream",
      {command()}};
  return ql::run_tool(table, argc, argv, evaluate);
}
