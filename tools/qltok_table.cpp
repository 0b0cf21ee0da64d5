// Makes the option table of qltok.

#include "base/options.h"
#include "base/strings.h"
#include "base/tool.h"
#include "tables.h"
#include "text/encoder.h"
#include "text/vocabulary_builder.h"

using namespace ql;

static Option invalid() {
  return make_choice("invalid", "RULE",
                     "What to do with invalid UTF-8: stop with an error, or replace each invalid "
                     "sequence by U+FFFD. A vocabulary of bytes accepts any text.",
                     all_names<text::InvalidText>());
}

static Command vocab_command() {
  return {
      "vocab",
      "make a vocabulary from text",
      "[FILE...|-]",
      {files_from_option(),
       make_choice(
           "type", "TYPE",
           "What a token is: word, the text between whitespace; char, a Unicode code point; byte; "
           "sentencepiece, a piece of a word that the SentencePiece library learns; or piece, any "
           "text that an imported file gives an id (only with --import).",
           all_names<text::TokenType>()),
       make_option("import", OptionType::kFile, "FILE",
                   "Take the vocabulary of another program: a SentencePiece model, a "
                   "tokenizer.json or vocab.json of Hugging Face, a tiktoken list, another list "
                   "with ids, or a list without ids. A list without ids gives words, like that of "
                   "the public Transformer-XL: the first word of each line is a token, and a "
                   "number after it is its count. With --type piece each complete line is a token, "
                   "in which \\n, \\t, \\r, \\\\ and \\xNN stand for bytes. Pieces can be named "
                   "and decoded, but no text can be encoded into them. - is standard input."),
       make_option("eos-token", OptionType::kText, "TOKEN",
                   "The token of the imported file that serves as <eos>. Default: the token that "
                   "the file declares, or else the only one of <eos>, </s>, </S>, <S>, "
                   "<|endoftext|>, [EOS] and <|end_of_text|>; of several, one must be chosen."),
       make_option("unk-token", OptionType::kText, "TOKEN",
                   "The token of the imported file that serves as <unk>. Default: the token that "
                   "the file declares, or else the only one of <unk>, <UNK> and [UNK]; of "
                   "several, one must be chosen."),
       make_integer("id-offset",
                    "The id of the first token of an imported list without ids. The ids before N "
                    "get placeholders such as <missing:0>. Default: 0. A dict.txt of fairseq has "
                    "the default 4, with the ids 0 to 3 for <s>, <pad>, </s> and <unk>.",
                    "", 0, 1 << 16),
       required(with_letter(
           'o', make_option("output", OptionType::kFile, "VOCAB",
                            "The vocabulary file to write; - is standard output. "
                            "Only an older vocabulary, which is not read, is replaced."))),
       make_flag("lowercase",
                 "Lower-case the text by the Unicode rules, here and in every encode with this "
                 "vocabulary."),
       make_choice(
           "blanks", "KIND",
           "Which whitespace ends words, here and in every encode with this vocabulary: that of "
           "ASCII, or all of Unicode as in Python's str.split(). auto: ascii for text; unicode for "
           "a list of --import, unless one of its words contains Unicode whitespace.",
           {"auto", "ascii", "unicode"}),
       make_flag("counts",
                 "FILEs hold counts instead of text: vocabularies of the parts of a text, made "
                 "with the same options but without --min-count and --max-size, or lists with one "
                 "word and its count per line. In a list, the count of <eos> is the number of "
                 "lines. The result is the vocabulary of the complete text."),
       make_integer("min-count", "Leave out words or characters that occur fewer than N times.",
                    "1", 1, INT64_MAX),
       make_integer("max-size",
                    "Keep at most N entries, <eos> and <unk> included; of words and characters, "
                    "the most frequent ones. Needed for sentencepiece.",
                    "", 1, INT64_C(1) << 31),
       make_real("character-coverage", "F",
                 "For sentencepiece: the most frequent characters, which together make up this "
                 "share of the text, get pieces of their own. Other characters become bytes. With "
                 "--unk always they become <unk>. Default: 0.9995, or less where --max-size has no "
                 "room for that many characters.",
                 "", 1e-6, 1),
       make_choice("eos", "WHEN",
                   "Give the vocabulary a token <eos> for line ends: always, never, or (auto) for "
                   "the types word and sentencepiece. A sentencepiece vocabulary always has <eos>; "
                   "encode --eos none leaves it unused. With --import, a file without such a token "
                   "is refused if WHEN is always, and accepted if WHEN is auto.",
                   all_names<text::Presence>()),
       make_choice("unk", "WHEN",
                   "Give the vocabulary a token <unk> for unknown text: always, never, or (auto) "
                   "for the types word and char. A sentencepiece vocabulary always has <unk>, but "
                   "uses it only if WHEN is always. Otherwise it has a piece for each of the 256 "
                   "bytes, for text "
                   "that its other pieces do not cover. With --import, a file without a token for "
                   "unknown text is refused if WHEN is always, and accepted if WHEN is auto.",
                   all_names<text::Presence>()),
       invalid(), raw_option(),
       threads_option("The vocabulary is the same for every N, except for the command line that it "
                      "records. Each thread keeps counts of its own in memory. Sentencepiece "
                      "always trains with 4 threads.")},
      {{"qltok vocab --type word -o words.json train.txt", "All words of a text"},
       {"qltok vocab --min-count 3 --lowercase -o words.json a.txt b.txt",
        "Lower-cased words that occur at least three times"},
       {"qltok vocab --counts --max-size 100k -o vocab.json part-*.json",
        "The vocabulary of a text whose parts were counted apart"},
       {"qltok vocab --type sentencepiece --max-size 8k -o pieces.json train.txt",
        "8,000 pieces of words"},
       {"qltok vocab --import tokenizer.json -o vocab.json",
        "Names for the token ids of another program"}}};
}

static Command encode_command() {
  return {
      "encode",
      "turn text into token ids",
      "[FILE...|-]",
      {required(make_option("vocab", OptionType::kFile, "VOCAB",
                            "The vocabulary file, or a checkpoint that has one.")),
       files_from_option(),
       make_choice("eos", "RULE",
                   "What becomes <eos>: no line end (none), every line end (line), or every line "
                   "end and the beginning of every line (double, as for One Billion Word). auto: "
                   "line where the vocabulary has <eos>, otherwise none.",
                   {"auto", "none", "line", "double"}),
       make_option("document", OptionType::kText, "blank|file|line|none|REGEX",
                   "Where documents begin: blank (at a line with text after a blank line), file "
                   "(at each file), line (at each line), none (all input is one document), or an "
                   "ECMAScript regular expression that is found in the first line of a document.",
                   "file"),
       make_choice("unknown", "RULE",
                   "What to do with text outside the vocabulary: replace it by <unk>, or stop with "
                   "an error.",
                   all_names<text::UnknownRule>()),
       invalid(), raw_option(),
       make_choice("output", "FORMAT",
                   "What to write: stream, a token stream; ids, decimal ids as text, one line per "
                   "document; or pieces, the tokens themselves as text, with spaces between them "
                   "and a line end after the token of each line end.",
                   {"stream", "ids", "pieces"}),
       output_file_option(" A token stream replaces only an older token stream."),
       threads_option(
           "The ids are the same for every N. A token stream also records the command line.")},
      {{"qltok encode --vocab words.json train.txt | qlbin pack -o data/train",
        "Tokens of a text, packed into shards"},
       {"qltok encode --vocab words.json --document '^ = [^=].* = $' train.txt | qlbin pack -o "
        "data/train",
        "The same, every article of WikiText a document"},
       {"echo the cat | qltok encode --vocab words.json --output ids", "Ids to look at"},
       {"echo the cat | qltok encode --vocab words.json --output pieces", "Tokens to look at"}}};
}

static Command decode_command() {
  return {"decode",
          "turn token ids back into text",
          "[FILE|-]",
          {make_option(
               "vocab", OptionType::kFile, "VOCAB",
               "The vocabulary file, or a checkpoint that has one. Needed only for input without a "
               "vocabulary; otherwise it must be the same as the vocabulary of the token stream."),
           make_choice("eos", "RULE",
                       "What <eos> stands for: a line end, or (double) the beginning and the end "
                       "of a line in turn, as in encode --eos double.",
                       {"line", "double"}),
           make_choice("line-style", "STYLE",
                       "How words are written on a line: plain puts one space between words; "
                       "padded puts one space before the first word and one after every word, as "
                       "in WikiText. auto: as the vocabulary records.",
                       {"auto", "plain", "padded"}),
           make_choice(
               "input", "FORMAT",
               "What the input is: a token stream, or decimal ids as text, one line per document.",
               {"stream", "ids"}),
           output_file_option()},
          {{"qlbin cat data/train | qltok decode", "Text of packed tokens"},
           {"echo 5 17 3 | qltok decode --vocab words.json --input ids", "Text of some ids"}}};
}

static Command tokens_command() {
  return {"tokens",
          "print the tokens of a vocabulary in the order of their ids",
          "VOCAB",
          {output_file_option()},
          {{"qltok tokens vocab.json | cat -n", "Tokens with the numbers of their lines"},
           {"qltok tokens runs/ql/best | grep -n -x the",
            "The line of a token, which is its id plus 1"}}};
}

ToolTable qltok_table() {
  return {"qltok",
          "Turn text into token ids and back.",
          {vocab_command(), encode_command(), decode_command(), tokens_command()}};
}
