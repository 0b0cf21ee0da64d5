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
                     "sequence by U+FFFD. Bytes take any text.",
                     all_names<text::InvalidText>());
}

static Command vocab_command() {
  return {"vocab",
          "make a vocabulary from text",
          "[FILE...|-]",
          {files_from_option(),
           make_choice(
               "type", "TYPE",
               "What a token is: a word between blanks, a Unicode code point, a byte, a piece of a "
               "word learned by the SentencePiece library, or (piece, with --import only) any text "
               "that names an id.",
               all_names<text::TokenType>()),
           make_option(
               "import", OptionType::kFile, "FILE",
               "Take the vocabulary of another program: a SentencePiece model, a tokenizer.json "
               "or vocab.json of Hugging Face, a tiktoken list, another list with ids, or a list "
               "with one token a line. A list has words, as that of the public Transformer-XL: the "
               "first word of each line, and its count if that follows. With --type piece it has "
               "texts, with \\n, \\t, \\r, \\\\ and \\xNN for bytes. "
               "Pieces decode and name tokens, but do not encode. - is standard input."),
           make_option("eos-token", OptionType::kText, "TOKEN",
                       "The token of --import that is <eos>. Default: what the file says, or one "
                       "named <eos>, </s>, </S>, <S>, <|endoftext|>, [EOS] or <|end_of_text|>."),
           make_option("unk-token", OptionType::kText, "TOKEN",
                       "The same for <unk>. Default: what the file says, or one named <unk>, "
                       "<UNK> or [UNK]."),
           make_integer("id-offset",
                        "The id of the first token of a list without ids (--import): that many "
                        "placeholders come before it. Default: 4 for a dict.txt of fairseq, "
                        "otherwise 0.",
                        "", 0, 1 << 16),
           required(with_letter(
               'o', make_option("output", OptionType::kFile, "VOCAB",
                                "The vocabulary file to write; - is standard output."))),
           make_flag("lowercase",
                     "Lower-case the text by the Unicode rules, here and in every encode with this "
                     "vocabulary."),
           make_choice(
               "blanks", "KIND",
               "Where words end, here and in every encode with this vocabulary: at ASCII blanks, "
               "or at all those of Unicode, as with Python's str.split(). auto: ascii for text; "
               "unicode for a list of --import, unless one of its words has such a blank inside.",
               {"auto", "ascii", "unicode"}),
           make_flag("counts",
                     "FILEs are counts in the place of text: vocabularies of the parts of a text, "
                     "made with the same options but without --min-count and --max-size, or lists "
                     "with a word and its count a line, where <eos> counts lines. The vocabulary "
                     "is that of all the text."),
           make_integer("min-count", "Leave out words or characters that occur less than N times.",
                        "1", 1, INT64_MAX),
           make_integer("max-size",
                        "Keep at most N entries, <eos> and <unk> included: the most frequent ones. "
                        "Needed for sentencepiece.",
                        "", 1, INT64_C(1) << 31),
           make_real("character-coverage", "F",
                     "Sentencepiece: the most frequent characters that make up this part of the "
                     "text get pieces of their own; others become bytes, or with --unk always "
                     "<unk>. Without the option 0.9995, or what --max-size has room for.",
                     "", 1e-6, 1),
           make_choice(
               "eos", "WHEN",
               "When the vocabulary has a token <eos> for line ends; auto: if it has words or "
               "sentencepiece. With --import, always refuses a file that has none, and auto does "
               "not.",
               all_names<text::Presence>()),
           make_choice(
               "unk", "WHEN",
               "When the vocabulary has a token <unk> for unknown text; auto: if it has words or "
               "characters. In sentencepiece it is used only with always; otherwise 256 byte "
               "pieces stand for text that the other pieces do not cover. With --import it acts as "
               "--eos does.",
               all_names<text::Presence>()),
           invalid(), raw_option(),
           threads_option(
               "The vocabulary is the same for every N, except for the command line that it names. "
               "Each thread counts apart, in memory of its own. "
               "Sentencepiece uses one only.")},
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
       make_choice(
           "eos", "RULE",
           "What becomes <eos>: no line end (none), every line end (line), or every line end "
           "and the beginning of every line (double, as for One Billion Word). auto: line where "
           "the vocabulary has <eos>, otherwise none.",
           {"auto", "none", "line", "double"}),
       make_option(
           "document", OptionType::kText, "RULE",
           "Where documents begin: blank (at a line with text after a blank line), file, line, "
           "none (all input is one document), or an ECMAScript regular expression that is found in "
           "the "
           "first line of a document.",
           "file"),
       make_choice(
           "unknown", "RULE",
           "What to do with text outside the vocabulary: take <unk>, or stop with an error.",
           all_names<text::UnknownRule>()),
       invalid(), raw_option(),
       make_choice("output", "FORMAT",
                   "What to write: a token stream; ids: decimal ids as text, one line a document; "
                   "or pieces: the "
                   "tokens themselves as text, with blanks between them, one line for each line.",
                   {"stream", "ids", "pieces"}),
       output_file_option(),
       threads_option("The ids are the same for every N; a token stream names the command line.")},
      {{"qltok encode --vocab words.json train.txt | qlbin pack -o data/train",
        "Tokens of a text, packed into shards"},
       {"qltok encode --vocab words.json --document '^ = [^=].* = $' train.txt | qlbin pack -o "
        "data/train",
        "The same, every article of WikiText a document"},
       {"echo the cat | qltok encode --vocab words.json --output ids", "Ids to look at"},
       {"echo the cat | qltok encode --vocab words.json --output pieces", "Tokens to look at"}}};
}

static Command decode_command() {
  return {
      "decode",
      "turn token ids back into text",
      "[FILE|-]",
      {make_option(
           "vocab", OptionType::kFile, "VOCAB",
           "The vocabulary file, or a checkpoint that has one. A token stream brings its own; then "
           "both must be the same."),
       make_choice(
           "eos", "RULE",
           "What <eos> stands for: a line end, or (double) in turn the beginning and the end of "
           "a line, as in encode --eos double.",
           {"line", "double"}),
       make_choice(
           "line-style", "STYLE",
           "How words stand on a line: plain puts one blank between words, padded one before "
           "the first and one after every word, as in WikiText. auto: as the vocabulary says.",
           {"auto", "plain", "padded"}),
       make_choice("input", "FORMAT",
                   "A token stream, or decimal ids as text, one line a document.",
                   {"stream", "ids"}),
       output_file_option()},
      {{"qlbin cat data/train | qltok decode", "Text of packed tokens"},
       {"echo 5 17 3 | qltok decode --vocab words.json --input ids", "Text of some ids"}}};
}

ToolTable qltok_table() {
  return {"qltok",
          "Turn text into token ids and back.",
          {vocab_command(), encode_command(), decode_command()}};
}
