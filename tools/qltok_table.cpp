#include "qltok_table.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/common_options.h"

namespace {

using ql::Command;
using ql::Option;
using ql::OptionType;

Option option(const char* name, OptionType type, const char* value_name, const char* help,
              const char* default_value = "") {
  Option made;
  made.name = name;
  made.type = type;
  made.value_name = value_name;
  made.help = help;
  made.default_value = default_value;
  return made;
}

Option choice(const char* name, const char* value_name, const char* help, const char* default_value,
              std::vector<std::string> choices) {
  Option made = option(name, OptionType::kChoice, value_name, help, default_value);
  made.choices = std::move(choices);
  return made;
}

Option number(const char* name, const char* help, const char* default_value, std::int64_t minimum,
              std::int64_t maximum) {
  Option made = option(name, OptionType::kInteger, "N", help, default_value);
  made.minimum = minimum;
  made.maximum = maximum;
  return made;
}

Option required_file(const char* name, char letter, const char* help) {
  Option made = option(name, OptionType::kFile, "VOCAB", help);
  made.letter = letter;
  made.required = true;
  return made;
}

Option invalid() {
  return choice("invalid", "RULE",
                "What to do with invalid UTF-8: stop with an error, or replace each invalid "
                "sequence by U+FFFD. Bytes take any text.",
                "error", {"error", "replace"});
}

Command vocab_command() {
  return {
      "vocab",
      "make a vocabulary from text",
      "[FILE...|-]",
      {choice("type", "TYPE",
              "What a token is: a word between blanks, a Unicode code point, a byte, or a piece "
              "of a word learned by the SentencePiece library.",
              "word", {"word", "char", "byte", "sentencepiece"}),
       required_file("output", 'o', "The vocabulary file to write; - is standard output."),
       option("lowercase", OptionType::kFlag, "",
              "Lower-case the text by the Unicode rules, here and in every encode with this "
              "vocabulary."),
       number("min-count", "Leave out words or characters that occur less than N times.", "1", 1,
              INT64_MAX),
       number("max-size",
              "Keep at most N entries, <eos> and <unk> included: the most frequent ones. "
              "Needed for sentencepiece.",
              "", 1, INT64_C(1) << 31),
       choice("eos", "WHEN",
              "Whether there is a token <eos> for line ends; auto: for words and sentencepiece.",
              "auto", {"auto", "always", "never"}),
       choice("unk", "WHEN",
              "Whether there is a token <unk> for what is outside the vocabulary; auto: for words "
              "and characters. Sentencepiece: always means that <unk> is used; otherwise 256 byte "
              "pieces stand for what the other pieces do not cover.",
              "auto", {"auto", "always", "never"}),
       invalid(),
       ql::threads_option(
           "The vocabulary is the same for every N, but for the command line that it names. "
           "Each thread counts apart, in memory of its "
           "own. Sentencepiece uses one only.")},
      {{"qltok vocab --type word -o words.json train.txt", "All words of a text"},
       {"qltok vocab --min-count 3 --lowercase -o words.json a.txt b.txt",
        "Lower-cased words that occur at least three times"},
       {"qltok vocab --type sentencepiece --max-size 8k -o pieces.json train.txt",
        "8,000 pieces of words"}}};
}

Command encode_command() {
  return {
      "encode",
      "turn text into token ids on standard output",
      "[FILE...|-]",
      {required_file("vocab", 0, "The vocabulary file."),
       choice("eos", "RULE",
              "What becomes <eos>: no line end (none), every line end (line), or every line end "
              "and the beginning of every line (double, as for One Billion Word). auto: line where "
              "the vocabulary has <eos>, otherwise none.",
              "auto", {"auto", "none", "line", "double"}),
       option(
           "document", OptionType::kText, "RULE",
           "Where documents begin: blank (at a line with text behind a blank line), file, line, "
           "none "
           "(all input is one document), or an ECMAScript regular expression that is found in the "
           "first line of a document.",
           "file"),
       choice("unknown", "RULE",
              "What to do with text outside the vocabulary: take <unk>, or stop with an error.",
              "unk", {"unk", "error"}),
       invalid(),
       choice("output", "FORMAT",
              "A token stream, or ids: decimal ids as text, one line a document.", "stream",
              {"stream", "ids"}),
       ql::threads_option("The ids are the same for every N.")},
      {{"qltok encode --vocab words.json train.txt | qlbin pack -o data/train",
        "Tokens of a text, packed into shards"},
       {"qltok encode --vocab words.json --document '^ = [^=].* = $' train.txt | qlbin pack -o "
        "data/train",
        "The same, every article of WikiText a document"},
       {"echo the cat | qltok encode --vocab words.json --output ids", "Ids to look at"}}};
}

Command decode_command() {
  return {
      "decode",
      "turn token ids back into text on standard output",
      "[FILE|-]",
      {option("vocab", OptionType::kFile, "VOCAB",
              "The vocabulary file. A token stream brings its own; then both must be the same."),
       choice("eos", "RULE",
              "What <eos> stands for: a line end, or (double) in turn the beginning and the end of "
              "a line, as in encode --eos double.",
              "line", {"line", "double"}),
       choice("line-style", "STYLE",
              "How words stand on a line: plain puts one blank between words, padded one before "
              "the first and one behind every word, as in WikiText. auto: as the vocabulary says.",
              "auto", {"auto", "plain", "padded"}),
       choice("input", "FORMAT", "A token stream, or decimal ids as text, one line a document.",
              "stream", {"stream", "ids"})},
      {{"qlbin cat data/train | qltok decode", "Text of packed tokens"},
       {"echo 5 17 3 | qltok decode --vocab words.json --input ids", "Text of some ids"}}};
}

}  // namespace

const ql::ToolTable& qltok_table() {
  static const ql::ToolTable kTable{"qltok",
                                    "Turn text into token ids and back.",
                                    {vocab_command(), encode_command(), decode_command()}};
  return kTable;
}
