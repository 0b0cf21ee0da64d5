// Makes the option table of qlgen.

#include <filesystem>

#include "base/error.h"
#include "base/options.h"
#include "base/strings.h"
#include "base/tool.h"
#include "machine/precision.h"
#include "net/model_file.h"
#include "tables.h"

using namespace ql;

static Command command() {
  return {
      "",
      "",
      "[STREAM|-]",
      {required(with_letter('m', make_option("model", OptionType::kFolder, "CHECKPOINT",
                                             "Folder with model.json and model.safetensors."))),
       make_option(
           "text", OptionType::kText, "PROMPT",
           "Use this text as the prompt instead of a token stream, and print the prompt and its "
           "continuation as text. The checkpoint folder must contain vocabulary.json."),
       make_option("items", OptionType::kFile, "FILE",
                   "Continue the items of qleval --items instead of a token stream: each context "
                   "with each of its choices, as soon as its line comes. Prints a JSON object a "
                   "line. With - the lines come from standard input."),
       make_integer("tokens", "Maximum number of tokens of each continuation.", "100", 1, kLongest),
       repeatable(make_option(
           "until", OptionType::kText, "ID|TOKEN|STRING|line|document",
           "End a continuation after this token, before this string of several tokens, at the end "
           "of a line (<eos>, or the line feed's token), or at the end of a document (a blank "
           "line).")),
       make_integer("samples",
                    "Number of continuations of each prompt. They are computed in batches.", "1", 1,
                    kLongest),
       make_choice("prompts", "WHAT",
                   "stream: all of the input is one prompt. document: every document is a prompt "
                   "of its own, with empty memory before it.",
                   {"stream", "document"}),
       make_flag("open",
                 "Remove the line end at the end of a prompt, so that the continuation begins "
                 "inside the prompt's last line."),
       make_option("without", OptionType::kText, "ID|TOKEN,...",
                   "Never choose these tokens; their probability goes to the other tokens. For "
                   "instance, <unk> keeps unknown words out of the text."),
       make_real("temperature", "T",
                 "Divide the logits by T. Below 1, likely tokens become likelier; with 0 the "
                 "likeliest token is always chosen.",
                 "1", 0, 1000),
       make_integer("top-k", "Choose among the N likeliest tokens; 0: among all tokens.", "0", 0,
                    kLongest),
       make_real("top-p", "P",
                 "Choose among the fewest tokens, the likeliest first, whose probabilities add up "
                 "to at least P.",
                 "1", 0, 1),
       make_real("min-p", "P",
                 "Choose among the tokens that have at least P times the probability of the "
                 "likeliest token.",
                 "0", 0, 1),
       make_real(
           "repetition-penalty", "R",
           "For each token that the prompt or the sample contains, divide a positive logit by R "
           "and multiply a negative logit by R. Above 1, repetitions become less likely.",
           "1", 0.001, 1000),
       make_integer("repetition-window",
                    "Penalize only tokens that occur among the last N tokens of prompt and sample; "
                    "0: among all of them.",
                    "0", 0, kLongest),
       make_integer(
           "seed",
           "The same seed gives the same continuations, on the CPU for any number of samples "
           "and, except in networks with linear attention or pool most-used, of threads. "
           "From 0 to 9223372036854775807.",
           "1", 0),
       make_integer("segment", "Segment length in tokens; default: the one trained with.", "", 1,
                    kLongest),
       make_integer("memory", "Memory length in states; default: the one trained with.", "", 0,
                    kLongest),
       make_integer(
           "compressed-memory",
           "Compressed memory length of a Compressive Transformer; default: the one trained with.",
           "", 0, kLongest),
       without_default(make_integer("stride",
                                    "Slide the window of a network without memory by N tokens "
                                    "whenever the window is full. With 1, tokens see the most "
                                    "context and take the longest time; default: half the segment.",
                                    "0", 1, kLongest)),
       make_option(
           "log-probabilities", OptionType::kFile, "FILE",
           "Write a table of all generated tokens: prompt, sample, position, id, and the "
           "natural logarithm of the network's probability of the token. A file that is read is "
           "not replaced."),
       threads_option(
           "Without linear attention and pool most-used, the tokens are the same for every N."),
       make_option("device", OptionType::kText, "cpu|cuda|cuda:N",
                   "Device that computes; cuda is the first GPU.", "cpu"),
       make_choice("precision", "PRECISION",
                   "Precision of matrix products; it may differ from that of training. The CPU has "
                   "float32 and, on some processors, bfloat16, which halves the bytes of weights "
                   "that are read for a token.",
                   all_names<machine::Precision>())},
      {{"echo it is a | qltok encode --vocab v.json | qlgen -m runs/ql/best --open | qltok decode",
        "go on with a line"},
       {"qltok encode --vocab v.json </dev/null | qlgen -m runs/ql/best --tokens 20 | qltok decode",
        "without a prompt: what follows the end of a line"},
       {"qltok encode --vocab v.json --document line new.txt | qlgen -m runs/ql/best --prompts "
        "document --samples 3 --until line | qltok decode",
        "three continuations of every line"},
       {"qlgen -m runs/ql/best --text 'it is a'", "text alone, with the checkpoint's vocabulary"}}};
}

ToolTable qlgen_table() {
  return {"qlgen", "text from a language model: a prompt goes on, token by token", {command()}};
}

void check_qlgen(const Options& options) {
  for (const char* prompt : {"text", "items"}) {
    if (!options.has(prompt) || options.positional().empty()) continue;
    throw UsageError(fmt::format("--{}", prompt),
                     fmt::format("gives a prompt, and so does {}", options.positional()[0]),
                     "leave one of them out");
  }
  if (options.has("items")) {
    options.refuse({"text", "open", "prompts", "samples", "log-probabilities"}, "--{}",
                   "does not go with --items", "leave one of the two options out");
  }
  std::error_code ignored;
  if (!options.positional().empty() &&
      std::filesystem::is_directory(options.positional()[0], ignored)) {
    throw UsageError(options.positional()[0], "is a folder, but a token stream is expected",
                     "give packed data through a pipe: qlbin cat FOLDER | qlgen -m CHECKPOINT");
  }
  if (options.has("text")) {
    options.refuse({"open", "prompts"}, "--{}", "applies to prompts from a token stream",
                   "leave --{} out: --text is one prompt, continued inside its last line");
  }
  if (options.given("repetition-window") && options.real("repetition-penalty") == 1) {
    throw UsageError("--repetition-window",
                     "has no effect while --repetition-penalty is 1 (no penalty)",
                     "give --repetition-penalty 1.2, or leave --repetition-window out");
  }
  if (options.has("log-probabilities")) {
    if (options.text("log-probabilities") == "-") {
      throw UsageError("--log-probabilities", "standard output already has the continuations",
                       "give a file's name instead of -");
    }
    std::vector<std::string> read = net::checkpoint_files(options.text("model"));
    if (!options.positional().empty()) {
      read.push_back(options.positional()[0]);
    } else if (!options.has("text")) {
      read.emplace_back("-");
    }
    refuse_to_replace(options.text("log-probabilities"), read, "--log-probabilities");
  }
}
