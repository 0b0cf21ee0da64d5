// Makes the option table of qleval.

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/options.h"
#include "base/strings.h"
#include "base/tool.h"
#include "machine/precision.h"
#include "net/model_file.h"
#include "shard/packed_folder.h"
#include "tables.h"

using namespace ql;

std::vector<std::string> qleval_first_columns() {
  return {"checkpoint",      "data",         "segment",
          "memory",          "context",      "perplexity",
          "standard_error",  "targets",      "tokens_per_second",
          "word_perplexity", "bits_per_byte"};
}

static std::vector<Option> own_options() {
  return {
      repeatable(with_letter(
          'm', make_option("model", OptionType::kFolder, "CHECKPOINT",
                           "Folder with model.json and model.safetensors to evaluate."))),
      repeatable(make_option("data", OptionType::kFolder, "DIR",
                             "What to score: packed data (qlbin pack), or a token stream (qltok "
                             "encode) in a file, a pipe or, as -, on standard input.")),
      make_option("items", OptionType::kFile, "FILE",
                  "Score choices that continue contexts instead of data: a JSON object a line, as "
                  "{\"context\": \"...\", \"choices\": [\"...\", \"...\"], \"answer\": 0}. With - "
                  "the lines come from standard input."),
      make_option("group", OptionType::kText, "KEY",
                  "With --items: also print a row for each value of this key of the items."),
      make_integers("segment", "N,...", "Segment lengths in tokens; default: as in training.", "",
                    1, kLongest),
      make_integers("memory", "N,...", "Memory lengths in states; default: as in training.", "", 0,
                    kLongest),
      make_integers(
          "compressed-memory", "N,...",
          "Compressed memory lengths of a Compressive Transformer; default: as in training.", "", 0,
          kLongest),
      without_default(make_integer(
          "clamp-len", "Count distances beyond N as N, as the key clamp_len of the network does.",
          "0", 1, kLongest)),
      make_flag("same-length",
                "Let every query see as many keys as the memory and the compressed memory have "
                "states, as the key same_length of the network does."),
      without_default(make_integer(
          "stride",
          "Slide the window of a network without memory by N tokens, and score its newest N "
          "targets, each with at least segment - N + 1 tokens before it. The first window scores "
          "all its targets. With 1, targets see the most context and take the longest time.",
          "0", 1, kLongest)),
      make_option("reset", OptionType::kText, "N|line|doubled-line|document",
                  "Empty the memory after every N tokens. With --per-token this shows how the loss "
                  "depends on a target's distance from the last reset. Or score every line, "
                  "doubled-line or document as if it stood alone, after a begin token. Such units "
                  "need one model, one data set and one value of each length."),
      make_option("begin", OptionType::kText, "ID|none",
                  "Read this token before every unit that stands alone, and before every item. The "
                  "default is <eos>; "
                  "without <eos>, it is the token of the line feed in a vocabulary of characters, "
                  "bytes or pieces. With none, the first token of a unit is not scored."),
      make_option("unigram", OptionType::kFolder, "DIR",
                  "Also score a unigram model, the baseline to beat, of this training data: packed "
                  "data or a token stream, as with --data."),
      without_default(make_choice(
          "per", "UNIT",
          "Print the loss of every line, doubled-line (between two <eos>), document, word or token "
          "as soon as it is known. Needs one model, one data set and one value of each length. "
          "With --items, choice prints every choice.",
          {"line", "doubled-line", "document", "word", "token", "choice"})),
      without_default(make_integer("top",
                                   "With --per token, also print the N likeliest tokens at every "
                                   "position, and the natural logarithms of their probabilities.",
                                   "0", 1, 1 << 16)),
      make_option("per-token", OptionType::kFile, "FILE",
                  "Write the loss of every target in nats, as little-endian float32, in stream "
                  "order. With - the losses go to standard output and the table to standard error. "
                  "A file that is read is not replaced. Needs one model, one data set and one "
                  "value of each length."),
      make_option("attention", OptionType::kFile, "FILE",
                  "Write where attention looks: the mean probability of a key by its distance from "
                  "the query, for every layer and head, as tab-separated columns. A file that is "
                  "read is not replaced. Needs one model, "
                  "one data set and one value of each length."),
      make_choice("format", "FORMAT",
                  "tsv: a table with a header line. json: a list of objects; with --per one object "
                  "per line.",
                  {"tsv", "json"}),
      columns_option(qleval_first_columns),
      make_flag("summary",
                "With --per: also print the table of a call without --per, on standard error, even "
                "if standard error is not a terminal."),
      make_integer("chunk",
                   "Tokens that go through a layer at once. Their number changes speed and use of "
                   "RAM, not the result. 0 chooses by the available RAM.",
                   "0", 0, kLongest)};
}

static Command command() {
  return {
      "",
      "",
      "[DIR...|-]",
      joined(
          own_options(),
          machine_options(
              "each read a part of the stream",
              make_choice(
                  "precision", "PRECISION",
                  "Precision of matrix products, whatever the network was trained with. The CPU "
                  "has float32 and, on some processors, bfloat16; auto is the fastest that the "
                  "device has. Precisions other than float32 change the last digits of the losses.",
                  all_names<machine::Precision>()))),
      {{"qleval -m runs/ql/best --data data/test",
        "the test perplexity with the lengths of training"},
       {"qleval -m runs/ql/best -m runs/xl/best --data data/test --segment 4,8 --memory 12,24",
        "two models, four pairs of lengths each"},
       {"qltok encode --vocab v.json new.txt | qleval -m runs/ql/best -",
        "score a text without packing it"},
       {"qltok encode --vocab v.json new.txt | qleval -m runs/ql/best - --per line",
        "the perplexity of every line, as it comes"},
       {"qleval -m runs/ql/best data/test --per token --top 3",
        "the loss of every token, and what the network expected in its place"},
       {"qleval -m runs/ql/best --items choices.jsonl --group phenomenon",
        "how often the network prefers the right one of several texts"},
       {"qleval --unigram data/train --data data/test", "the baseline alone"},
       {"qleval -m runs/ql/best --data data/test --per-token - | od -f -An -v -w4",
        "the loss of every token, one per line"}}};
}

ToolTable qleval_table() {
  return {"qleval",
          "perplexity of language models: every target scored once, in one unbroken stream",
          {command()}};
}

QlevalInputs qleval_inputs(const Options& options) {
  QlevalInputs inputs{options.texts("model"), options.texts("data")};
  for (const std::string& word : options.positional()) {
    const bool is_model = !inputs.checkpoints.empty() && shard::is_checkpoint(word);
    (is_model ? inputs.checkpoints : inputs.data).push_back(word);
  }
  return inputs;
}

static void check_reset(const Options& options) {
  const std::string reset = options.has("reset") ? options.text("reset") : "";
  const bool by_unit = reset == "line" || reset == "doubled-line" || reset == "document";
  const std::optional<std::int64_t> tokens = parse_integer(reset);
  if (options.has("reset") && !by_unit && !(tokens && *tokens > 0 && *tokens <= kLongest)) {
    throw UsageError("--reset", fmt::format("expected a number of tokens from 1 to {}, 'line', "
                                            "'doubled-line' or 'document', found '{}'",
                                            kLongest, reset));
  }
  if (by_unit) {
    options.refuse({"per-token", "unigram", "stride"}, "--{}",
                   "scores the data as one text, but --reset " + reset + " reads every " + reset +
                       " separately",
                   "leave one of the two options out");
  }
  if (!options.has("begin")) return;
  if (!by_unit && !options.has("items")) {
    throw UsageError(
        "--begin",
        "applies only with --items, --reset line, --reset doubled-line or --reset document",
        "add one of these, or leave --begin out");
  }
  const std::string begin = options.text("begin");
  const std::optional<std::int64_t> id = parse_integer(begin);
  if (begin != "none" && !(id && *id >= 0 && *id < net::kMaxVocabulary)) {
    throw UsageError("--begin", fmt::format("expected a token's id (0 to {}) or 'none', found '{}'",
                                            net::kMaxVocabulary - 1, begin));
  }
}

// Refuses options that do not go with --items, and those that need it.
static void check_items(const Options& options) {
  const bool per_choice = options.has("per") && options.text("per") == "choice";
  if (!options.has("items")) {
    options.refuse({"group"}, "--{}", "applies with --items only", "add --items FILE");
    if (per_choice) {
      throw UsageError("--per choice", "applies with --items only", "add --items FILE");
    }
    return;
  }
  options.refuse({"stride", "reset", "unigram", "top", "per-token", "attention", "summary"}, "--{}",
                 "does not go with --items", "leave one of the two options out");
  if (options.has("per") && !per_choice) {
    throw UsageError("--per", "with --items expected choice, found " + options.text("per"));
  }
  if (per_choice) {
    options.refuse({"group"}, "--{}", "applies to the table, not to --per choice",
                   "leave one of the two options out");
  }
  for (const char* key : {"context", "choices", "answer"}) {
    if (options.has("group") && options.text("group") == key) {
      throw UsageError("--group", fmt::format("'{}' is a part of the item itself", key),
                       "give another key, by which items belong together");
    }
  }
  const QlevalInputs inputs = qleval_inputs(options);
  if (!inputs.data.empty()) {
    throw UsageError(inputs.data.front(), "is data, but --items gives what is scored",
                     "leave one of the two out");
  }
  if (inputs.checkpoints.empty()) {
    throw UsageError("", "no model to evaluate", "give --model CHECKPOINT");
  }
  if (per_choice && inputs.checkpoints.size() > 1) {
    throw UsageError("--per", "needs one model", "call qleval once for each checkpoint");
  }
}

static void check_inputs(const Options& options) {
  if (options.has("items")) return;
  const QlevalInputs inputs = qleval_inputs(options);
  if (inputs.data.empty()) {
    throw UsageError("", "no data to score",
                     "give a folder that qlbin packed, or - for a token stream");
  }
  for (const std::string& name : inputs.data) {
    // Without -m, every positional argument counts as data, but the user may have meant a
    // checkpoint.
    if (inputs.checkpoints.empty() && shard::is_checkpoint(name)) {
      throw UsageError(name, "is a checkpoint, but data is expected",
                       fmt::format("give it with -m: -m {}", name));
    }
  }
  if (inputs.checkpoints.empty() && !options.has("unigram")) {
    throw UsageError("", "no model to evaluate", "give --model CHECKPOINT or --unigram DIR");
  }
  const bool counts_stream = options.has("unigram") && options.text("unigram") == "-";
  if (std::count(inputs.data.begin(), inputs.data.end(), "-") + (counts_stream ? 1 : 0) > 1) {
    throw UsageError("--data", "standard input can be read only once",
                     "write the stream to a file, and give the file instead of -");
  }
}

// Refuses a table of --per-token or --attention in the place of a file that is read.
static void check_tables(const Options& options) {
  QlevalInputs inputs = qleval_inputs(options);
  if (options.has("unigram")) inputs.data.push_back(options.text("unigram"));
  for (const char* name : {"per-token", "attention"}) {
    if (!options.has(name)) continue;
    const std::string output = options.text(name), option = fmt::format("--{}", name);
    for (const std::string& checkpoint : inputs.checkpoints) {
      refuse_to_replace(output, net::checkpoint_files(checkpoint), option);
    }
    for (const std::string& data : inputs.data) {
      refuse_to_replace(output, shard::files_of(data), option);
    }
  }
}

void check_qleval(const Options& options) {
  if (options.has("per")) {
    options.refuse({"per-token", "attention", "unigram"}, "--per", "does not go with --{}",
                   "leave one of them out");
  }
  if (options.has("top") && (!options.has("per") || options.text("per") != "token")) {
    throw UsageError("--top", "needs the rows of single tokens",
                     "give --per token, or leave --top out");
  }
  if (options.flag("summary") && !options.has("per")) {
    throw UsageError("--summary", "adds the table to the rows of --per, which is not given",
                     "leave it out: without --per the table is always printed");
  }
  if (options.has("attention") && options.text("attention") == "-") {
    throw UsageError("--attention",
                     "standard output already has the table of perplexities or the losses",
                     "give a file's name instead of -");
  }
  if (options.has("unigram") && !options.has("model")) {
    options.refuse({"segment", "memory", "compressed-memory", "stride", "reset", "attention",
                    "chunk", "device", "precision"},
                   "--{}", "applies to networks, not to a unigram model",
                   "add --model CHECKPOINT, or leave --{} out");
  }
  check_items(options);
  check_reset(options);
  check_inputs(options);
  check_tables(options);
}
