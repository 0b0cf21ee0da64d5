// Tests every kind of list that other programs write: the result of its import, or the error.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "text/vocabulary_import.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using test::complaint;
using testing::contains;

using Tokens = std::vector<std::string>;

struct Row {
  std::string what, name, content;
  std::optional<TokenType> asked;
  std::string error;  // part of the message; "" for lists that are imported
  TokenType type = TokenType::kPiece;
  Tokens tokens = {};
  std::string note = {};
};

std::string tiktoken(const std::vector<std::pair<std::string, int>>& tokens) {
  std::string list;
  for (const auto& [bytes, rank] : tokens) {
    list += base64_encode(bytes) + ' ' + std::to_string(rank) + '\n';
  }
  return list;
}

constexpr auto kWord = TokenType::kWord, kPiece = TokenType::kPiece;

std::vector<Row> imported_rows() {
  return {
      {"tiktoken",
       "tokenizer.model",
       tiktoken({{"!", 0}, {"the", 1}, {" the", 2}, {"\xC3", 3}, {"\n", 4}}),
       {},
       "",
       kPiece,
       {"!", "the", " the", "\\xC3", "\\n"}},
      {"tiktoken, ranks with gaps",
       "cl100k_base.tiktoken",
       tiktoken({{"!", 0}, {"the", 1}, {"at", 4}}),
       kPiece,
       "",
       kPiece,
       {"!", "the", "<missing:2>", "<missing:3>", "at"},
       "ids without a token: 2"},
      {"tiktoken, not in order",
       "t",
       "dGhl 2\r\nIQ== 0\r\nIHRoZQ== 1\r\n",
       {},
       "",
       kPiece,
       {"!", " the", "the"}},
      {"ids and pieces, one with a tab",
       "l",
       "0\t<unk>\n1\t\u2581the\n2\t\tif\n3\tif\n",
       {},
       "",
       kPiece,
       {"<unk>", " the", "\\tif", "if"},
       "the numbers are ids, not counts"},
      {"pieces that end with numbers",
       "l",
       "ice cream\nlevel 20\nlevel 30\n",
       kPiece,
       "",
       kPiece,
       {"ice cream", "level 20", "level 30"}},
      {"pieces with numbers that ascend",
       "l",
       "level 10\nlevel 20\nlevel 30\n",
       kPiece,
       "",
       kPiece,
       {"level 10", "level 20", "level 30"}},
      {"a first token without a count",
       "l",
       "<eos> -\nthe 500\ncat 300\n",
       {},
       "",
       kWord,
       {"<eos>", "the", "cat"}},
      {"words that look like base64, with ids",
       "t",
       "that 0\nthis 1\nwith 2\nfrom 3\n",
       {},
       "",
       kWord,
       {"that", "this", "with", "from"},
       "the numbers are ids, not counts"},
      {"ids in a column of equal width",
       "l",
       "0   the\n1   cat \n2   dog\n",
       {},
       "",
       kWord,
       {"the", "cat", "dog"},
       "the numbers are ids, not counts"},
      {"counts that descend to 1",
       "l",
       "the 3\ncat 2\nsat 1\n",
       {},
       "",
       kWord,
       {"the", "cat", "sat"}},
      {"words that look like base64, with counts",
       "t",
       "that 17\nwith 9\nfrom 3\n",
       {},
       "",
       kWord,
       {"that", "with", "from"}},
      {"the same, in no order",
       "t",
       "that 7\nwith 19\nfrom 0\n",
       {},
       "",
       kWord,
       {"that", "with", "from"}},
      {"vocab.json of GPT-2",
       "vocab.json",
       "{\"the\": 0, \"\u0120caf\u00C3\": 1, \"\u00A9\": 2, \"<|end of text|>\": 4}",
       {},
       "",
       kPiece,
       {"the", " caf\\xC3", "\\xA9", "<missing:3>", "<|end of text|>"},
       "named <missing:ID>"},
      {"a map with U+2581",
       "vocab.json",
       "{\"\u2581the\": 1, \"<unk>\": 0, \"<0x0A>\": 2}",
       {},
       "",
       kPiece,
       {"<unk>", " the", "\\n"}},
      {"a plain map", "w.json", "{\"the\": 1,\n\"\u00E9\": 0}", {}, "", kPiece, {"\u00E9", "the"}},
      {"a plain map as words",
       "w.json",
       "{\"the\": 1,\n\"\u00E9\": 0}",
       kWord,
       "",
       kWord,
       {"\u00E9", "the"}},
      {"Maltese has U+0120, too",
       "w.json",
       "{\"\u0120es\u00F9\": 0, \"\u017Cmien\": 1}",
       {},
       "",
       kPiece,
       {"\u0120es\u00F9", "\u017Cmien"}},
      {"ids with tokens",
       "i2w.json",
       R"({"1": "the", "0": "<unk>"})",
       {},
       "",
       kPiece,
       {"<unk>", "the"}},
      {"a JSON array",
       "l.json",
       R"(["<unk>", "the", "a b"])",
       {},
       "",
       kPiece,
       {"<unk>", "the", "a b"}},
      {"SentencePiece .vocab, unigram",
       "m.vocab",
       "<unk>\t0\n<s>\t0\n</s>\t0\n\u2581the\t-3.25\n<0x0A>\t0\n",
       {},
       "",
       kPiece,
       {"<unk>", "<s>", "</s>", " the", "\\n"},
       "to encode text, import the model (.model)"},
      {"SentencePiece .vocab, BPE",
       "m.vocab",
       "<unk>\t0\n\u2581t\t-0\nh\t-1\n",
       {},
       "",
       kPiece,
       {"<unk>", " t", "h"},
       ".model"},
      {"words with counts after a tab",
       "c",
       "<unk>\t0\nthe\t17\ncat\t4\n",
       {},
       "",
       kWord,
       {"<unk>", "the", "cat"}},
      {"dict.txt of fairseq",
       "data/dict.txt",
       "the 17\ncat 5\nmadeupword0000 0\n",
       {},
       "",
       kWord,
       {"<s>", "<pad>", "</s>", "<unk>", "the", "cat", "madeupword0000"},
       "ids start at 4"},
      {"dict.LANG.txt of fairseq",
       "dict.en.txt",
       "the 17\n",
       {},
       "",
       kWord,
       {"<s>", "<pad>", "</s>", "<unk>", "the"},
       "a fairseq list"},
      {"fairseq, pieces, and a name again",
       "dict.txt",
       "\u2581the 17\n<s> 0 #fairseq:overwrite\n",
       {},
       "",
       kPiece,
       {"<s>", "<pad>", "</s>", "<unk>", " the", "<missing:5>"},
       "imported as pieces"},
      {"the same as words",
       "dict.txt",
       "\u2581the 17\ncat 1\n",
       kWord,
       "",
       kWord,
       {"<s>", "<pad>", "</s>", "<unk>", "\u2581the", "cat"}},
      {"the content of fairseq, another name",
       "words.txt",
       "the 17\ncat 5\n",
       {},
       "",
       kWord,
       {"the", "cat"}},
      {"a token named like a placeholder",
       "v.json",
       R"({"a": 0, "<missing:1>": 2, "b": 3})",
       {},
       "",
       kPiece,
       {"a", "<<missing:1>>", "<missing:1>", "b"},
       "ids without a token: 1"},
      {"ids and tokens, one of them a blank",
       "l",
       "0\t!\n1\t \n2\ta\n",
       kPiece,
       "",
       kPiece,
       {"!", " ", "a"}},
      {"tokens and ids, one of them a blank",
       "l",
       "!\t0\n \t1\na\t2\n",
       kPiece,
       "",
       kPiece,
       {"!", " ", "a"}},
      {"ids and letters, which are not merges",
       "l",
       "0 A\n1 C\n2 G\n3 T\n",
       {},
       "",
       kWord,
       {"A", "C", "G", "T"},
       "the numbers are ids"},
      {"dict.txt of fairseq, compressed",
       "dict.txt.gz",
       "the 17\n",
       {},
       "",
       kWord,
       {"<s>", "<pad>", "</s>", "<unk>", "the"},
       "ids start at 4"},
      {"ids and tokens",
       "l",
       "0\tthe\n1\tcat\n2\tmat\n",
       {},
       "",
       kWord,
       {"the", "cat", "mat"},
       "ids, not counts"},
      {"tokens and ids from 1",
       "l",
       "the 1\ncat 2\nmat 3\n",
       {},
       "",
       kWord,
       {"<missing:0>", "the", "cat", "mat"},
       "ids, not counts"},
      {"counts that descend", "l", "the 3\ncat 2\nmat 1\n", {}, "", kWord, {"the", "cat", "mat"}},
      {"numbers with counts", "l", "0 5\n1 4\n2 4\n", {}, "", kWord, {"0", "1", "2"}},
      {"a list with U+2581",
       "l",
       "<unk>\n\u2581the\ncat\n",
       {},
       "",
       kPiece,
       {"<unk>", " the", "cat"},
       "imported as pieces"},
      {"the public Transformer-XL",
       "l",
       "<S>\nthe 7\n<UNK>\ncat x\n",
       {},
       "",
       kWord,
       {"<S>", "the", "<UNK>", "cat"}},
      {"words", "l", "[\n\"\nthe\n{\n", {}, "", kWord, {"[", "\"", "the", "{"}},
      {"ids after tokens with blanks",
       "l",
       "the\t0\n the\t1\nof the\t2\n!\t3\n",
       kPiece,
       "this is a list of tokens and ids",
       kPiece,
       {"the", " the", "of the", "!"}},
      {"ids after padded words",
       "l",
       "the \t0\n  cat\t1\n! \t2\n",
       {},
       "this is a list of tokens and ids",
       kWord,
       {"the", "cat", "!"}},
      {"WordPiece as names",
       "vocab.txt",
       "[PAD]\n[UNK]\nthe\n##s\n",
       kPiece,
       "",
       kPiece,
       {"[PAD]", "[UNK]", "the", "##s"}},
  };
}

std::vector<Row> refused_rows() {
  std::string cut;
  for (int rank = 0; rank < 20; ++rank) cut += tiktoken({{"a" + std::to_string(rank), rank}});
  std::string ids_of_ten;
  for (int id = 0; id < 10; ++id) {
    ids_of_ten += std::to_string(id) + "\ta" + std::to_string(id) + '\n';
  }
  std::vector<Row> rows = {
      {"tiktoken as words", "t", tiktoken({{"!", 0}, {"the", 1}}), kWord, "is a tiktoken list, of"},
      {"tiktoken, cut off", "t", cut + "YWJ", {}, "t: line 21: expected a token and its id"},
      {"tiktoken, an id far away", "t", cut + "enp6 4000000000\n", {}, "expected less than 65,578"},
      {"fairseq, a special token", "dict.txt", "<s> 0\nthe 17\n", {}, "give --id-offset 4"},
      {"merges.txt", "merges.txt", "#version: 0.2\n\u0120 t\nh e\n", {}, "give the vocab.json"},
      {"merges without a heading", "m", "\u0120 t\nh e\n\u0120t he\n", {}, "a list of BPE merges"},
      {"merges as pieces", "m", "e r</w>\nt h\nth e</w>\n", kPiece, "a list of BPE merges"},
      {"word2vec", "w.txt", "2 4\nthe 0.1 0.2 0.3 0.4\ncat 1 2 3 4\n", {}, "tail -n +2 FILE | awk"},
      {"more dimensions than any line has",
       "w",
       "1 18446744073709551615\n \n",
       {},
       "line 2: the line has no word"},
      {"GloVe", "g.txt", "the 0.1 0.2 0.3\ncat 1.0 -2e-3 3\n", {}, "awk '{print $1}' FILE"},
      {"counts, one of a blank", "l", "e\t5\n \t4\na\t3\n", {}, "line 2: the line has no word"},
      {"counts, line ends of Windows",
       "l",
       "e\t5\r\n \t4\r\na\t3\r\n",
       {},
       "line 2: the line has no"},
      {"ids, tokens and counts",
       "l",
       "12\tthe\t100\n13\tcat\t50\n14\tmat\t20\n",
       {},
       "the numbers before the tokens are not ids"},
      {"ids with a gap, one of a blank",
       "l",
       "!\t0\n \t1\na\t3\n",
       {},
       "may be ids that have gaps"},
      {"ids with a gap, as pieces", "l", "a b\t0\ncat\t1\nsat\t3\n", kPiece,
       "counts: cut -f 1 FILE"},
      {"ids in another order", "l", "the 2\ncat 0\nsat 1\n", {}, "counts: awk '{print $1}' FILE"},
      {"a damaged line of fairseq",
       "dict.txt",
       "a 9\nb 9\nc 9\nd 9\ne 9\nf 9\ng 9\nh 9\n 40\ni 9\n",
       {},
       "dict.txt: line 9: expected a word without blanks and its count"},
      {"a table with commas", "c.csv", "the,0\ncat,1\n", {}, "write one token per line"},
      {"a heading", "h", "token\tid\nthe\t0\ncat\t1\nmat\t2\n", {}, "tail -n +2 FILE > OTHER)"},
      {"a heading over counts", "h", "word count\nthe 500\ncat 300\n", {}, "tail -n +2 FILE"},
      {"a heading over three columns",
       "h",
       "id\ttoken\tcount\n0\tthe\t500\n1\tcat\t300\n",
       {},
       "tail -n +2 FILE"},
      {"uniq -c", "u", "     17 the\n      9 cat\n", {}, "awk 'NF > 1 {print $2, $1}' FILE"},
      {"uniq -c with empty lines", "u", "     17 the\n      9 \n", {}, "awk 'NF > 1"},
      {"ids and tokens, an empty line's", "l", "0\tthe\n1\t\n2\tcat\n", {}, "line 2: expected"},
      {"ids and tokens, one cut off",
       "l",
       ids_of_ten + "10\n",
       {},
       "the numbers before the tokens"},
      {"tokens in quotes", "q", "'<pad>'\n'the_'\n", {}, "sed -E"},
      {"WordPiece", "vocab.txt", "[PAD]\n[UNK]\nthe\n##s\n", {}, "FILE --type piece"},
      {"vocab.json of CLIP",
       "vocab.json",
       R"({"!": 0, "a": 1, "the</w>": 2})",
       {},
       "marked by </w>"},
      {"a list of GPT-1", "l", "!\nthe</w>\n", {}, "qltok vocab --import FILE --type piece"},
      {"a list of GPT-1 with counts",
       "l",
       "! 5\nthe</w> 2\n",
       {},
       "awk '{print $1}' FILE | qltok vocab --import - --type piece"},
      {"WordPiece in JSON", "v.json", R"({"[UNK]": 0, "##s": 1})", kWord,
       "marked by ## (WordPiece)"},
      {"nothing", "l", "", {}, "needs at least one token"},
      {"a dictionary of Python", "p", "{'the': 0, 'cat': 1}\n", {}, "json.dump"},
      {"another JSON object",
       "config.json",
       R"({"vocab_size": "5", "n": 2})",
       {},
       "it has no object 'model'"},
      {"another JSON array", "l.json", R"(["the", 5])", {}, "found 5 in it"},
      {"JSON, cut off", "vocab.json", R"({"the": 0, "ca)", {}, "syntax error"},
      {"two tokens of one id",
       "vocab.json",
       R"({"the": 0, "cat": 0})",
       {},
       "belongs to two tokens"},
      {"a .vocab, damaged",
       "m.vocab",
       "\u2581a\t-1\n\u2581b\t-2\n\u2581c\t-3\n\u2581d\t-4\n\u2581e\t-5\n"
       "\u2581f\t-6\n\u2581g\t-7\n\u2581h\t-8\n\u2581i\t-9\nj\n\n",
       {},
       "line 10: expected a piece and its score"},
      {"YAML of Marian", "vocab.yml", "</s>: 0\n\"<unk>\": 1\n", {}, "write it as JSON: python3"},
      {"YAML with a head",
       "vocab.yml",
       "---\n? the\n: 0\n",
       {},
       "this is YAML, as Marian writes it"},
  };
  return rows;
}

TEST_CASE("read_token_list: a list of another program is imported as it is meant") {
  for (const Row& row : imported_rows()) {
    INFO(row.what);
    VocabularyImport rules;
    rules.type = row.asked;
    std::vector<std::string> notes;
    std::optional<Vocabulary> made;
    CHECK(complaint([&] { made = import_vocabulary(row.content, rules, row.name, &notes); }) == "");
    if (!made) continue;
    CHECK(made->type() == row.type);
    Tokens tokens;
    for (TokenId id = 0; id < made->size(); ++id) tokens.emplace_back(made->token(id));
    CHECK(tokens == row.tokens);
    std::string all;
    for (const std::string& note : notes) all += note + '\n';
    CHECK(contains(all, row.note));
  }
}

TEST_CASE("read_token_list: a file that is not a list is refused, with advice") {
  for (const Row& row : refused_rows()) {
    INFO(row.what);
    VocabularyImport rules;
    rules.type = row.asked;
    const std::string message = complaint([&] { import_vocabulary(row.content, rules, row.name); });
    INFO(message);
    CHECK(contains(message, row.error));
  }
}

TEST_CASE("import_vocabulary: ids of a list begin where the caller says") {
  VocabularyImport rules;
  rules.id_offset = 2;
  const Vocabulary made = import_vocabulary("the 5\n<missing:1> 3\n", rules, "dict.txt");
  CHECK(made.size() == 4);
  CHECK(made.token(0) == "<missing:0>");
  CHECK(made.token(1) == "<<missing:1>>");
  CHECK(made.token(2) == "the");
  CHECK(made.counts() == std::vector<std::int64_t>{0, 0, 5, 3});
  CHECK_FALSE(made.eos());
  rules.id_offset = 0;
  CHECK(import_vocabulary("the 5\n", rules, "dict.txt").size() == 1);
  rules.id_offset = 4;
  CHECK(import_vocabulary("the 5\n", rules, "dict.txt").eos() == TokenId{2});
  CHECK(import_vocabulary("the 5\n", rules, "other").token(2) == "<missing:2>");
  CHECK(import_vocabulary("the 5\n", {}, "dict.txt").unk() == TokenId{3});
  CHECK(contains(complaint([&] { import_vocabulary(R"({"the": 0})", rules, "v.json"); }),
                 "--id-offset: v.json is a JSON object of tokens and ids, which has its own ids"));
}

}  // namespace
}  // namespace ql::text
