// Tests with the first bytes of every kind of file.

#include "base/file_kind.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "unit/complaint.h"

namespace ql {
namespace {

using namespace std::string_literals;

struct KindCase {
  std::string head;
  const char* said;  // part of the message where text is expected; "": it is accepted
};

// Returns ASCII text with `width` bytes a character.
std::string widened(const std::string& text, std::size_t width, bool big_endian) {
  std::string wide;
  for (const char c : text) {
    const std::string zeros(width - 1, '\0');
    wide += big_endian ? zeros + c : c + zeros;
  }
  return wide;
}

std::string tar_header() {
  std::string header(512, '\0');
  header.replace(0, 8, "text.txt");
  header.replace(257, 5, "ustar");
  return header;
}

const std::string kSentence = "The cat sat on the mat, and the dog \xE2\x80\x94 away.\n";

TEST_CASE(
    "check_kind: a file that is not plain text in UTF-8 is refused with its kind and advice") {
  const std::string words(100, 'x');
  const std::vector<KindCase> cases = {
      // These are plain text, some of it with beginnings like those of other kinds.
      {"", ""},
      {"the cat sat\n", ""},
      {kSentence, ""},
      {"\xEF\xBB\xBF" + kSentence, ""},
      {"\xC3\xA9t\xC3\xA9\n", ""},
      {"a\0b and more words on a line\n"s, ""},
      {"PK in a text", ""},
      {"BZh is how bzip2 begins", ""},
      {"7zip and Rar!", ""},
      {"GIF8 is not a picture yet", ""},
      {"PAR1 is a name", ""},
      {"RIFFRAFF of the town", ""},
      {"%PDX-1.4", ""},
      {"version 2 of the text\n", ""},
      {"<p>no page, but marks in a text</p>", ""},
      {"<mediawiki xmlns=\"http://www.mediawiki.org\">\n", ""},
      {"<?xml version=\"1.0\"?>\n<TEI>\n", ""},
      {"{\"o}der\" he wrote", ""},
      {"[\"a quotation\"]", ""},
      {"text, content and more\n", ""},
      {"id\tname\n", ""},
      {"WARC and peace\n", ""},
      {"Not Found\n", ""},
      {"outs and ins\n", ""},
      {"<HEADLINE>Oil prices rise</HEADLINE>\n<TEXT>\n", ""},
      {"<header>one</header>\n", ""},
      {"<HEAD>Title</HEAD>\n", ""},
      {"<htmlentities>\n", ""},
      {"<?xml version=\"1.0\"?>\n<headers>\n", ""},
      {"a\tb\tc\td\te\tf\tg\th\n", ""},
      {"MZ is a name, and BM, too\n", ""},
      {"070701 was the day", ""},
      {"ID3 of the list\n", ""},
      {"/annex of the house\n", ""},
      // These are packed files and archives.
      {"PK\x03\x04\x14\0\0\0"s + words,
       "this is a zip archive, not plain text in UTF-8; give it through "
       "a pipe: unzip -p FILE | PROGRAM ... -, or give --raw"},
      {"PK\x05\x06"s + std::string(18, '\0'), "an empty zip archive"},
      {"\xFD\x37zXZ\0\0\x04"s,
       "this is xz data, not plain text in UTF-8; give it through a pipe: xzcat FILE |"},
      {"\x5D\0\0\x80\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s, "lzma data"},
      {"BZh91AY&SY\x12\x34",
       "bzip2 data, not plain text in UTF-8; give it through a pipe: bzcat FILE |"},
      {"BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0"s, "empty bzip2 data"},
      {"\x04\x22\x4D\x18\x64", "lz4 data"},
      {"LZIP\x01\x0C", "lzip data"},
      {"\x89LZO\0\r\n\x1A\n"s, "lzop data"},
      {"\x1F\x9D\x90\x01", "Unix compress data (.Z)"},
      {"7z\xBC\xAF\x27\x1C\0\x04"s, "a 7z archive"},
      {"Rar!\x1A\x07\x01\0"s, "a rar archive"},
      {tar_header(),
       "a tar archive, not plain text in UTF-8; give it through a pipe: tar -xOf FILE |"},
      {"!<arch>\ndebian-binary", "an ar archive"},
      // These are compressed twice; the outer layer was unpacked.
      {"\x1F\x8B\x08\0"s, "gzip data"},
      {"\x28\xB5\x2F\xFD\x04", "zstd data"},
      {"\x50\x2A\x4D\x18\x04\0\0\0"s, "zstd data"},
      // These are data of other programs.
      {"\x93NUMPY\x01\0v\0{'descr'"s, "a NumPy array (.npy)"},
      {"\x80\x04\x95\x0A\0\0\0"s, "a Python pickle"},
      {"\x80\x02]q\0X"s, "a Python pickle"},
      {"\x80\x02\x63__main__\n", "a Python pickle"},
      {"(dp0\nS'the'\n", "a Python pickle"},
      {"\xC8\xD7\x34\x01\x02\0\0\0"s, "the tokenizer.bin of llm.c"},
      {"PAR1\x15\x04\x15", "a Parquet file"},
      {"ARROW1\0\0\xFF\xFF\xFF\xFF"s, "an Arrow file"},
      {"\x89HDF\r\n\x1A\n\0"s, "an HDF5 file"},
      {"SQLite format 3\0\x10"s, "an SQLite database"},
      {"GGUF\x03\0\0\0\x24"s, "a GGUF model"},
      {"MMIDIDX\0\0\x01"s, "the index of Megatron's or fairseq's token files"},
      {"\x58\x0A\0\0\0\0\0\0{\"__metadata__\""s, "weights (safetensors)"},
      {"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n",
       "a PDF document, not plain text in UTF-8; give it through a pipe: pdftotext FILE - |"},
      {"%!PS-Adobe-3.0\n", "a PostScript document"},
      {"{\\rtf1\\ansi", "an RTF document"},
      {"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1\0"s, "an office document"},
      {"\x7F\x45LF\x02\x01\x01\0"s, "a program"},
      {"\x89PNG\r\n\x1A\n\0\0\0\x0D"s, "a PNG picture"},
      {"\xFF\xD8\xFF\xE0", "a JPEG picture"},
      {"GIF89a\x01", "a GIF picture"},
      {"\0\0\0\x20"s + "ftypisom", "a film or sound"},
      {"RIFF\x24\x08\0\0WAVEfmt "s, "a sound"},
      {"OggS\0\x02"s, "a film or sound"},
      // These texts stand in for another file.
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
       "a Git LFS pointer in place of the file, not plain text in UTF-8; fetch the file: git lfs "
       "pull"},
      {"/annex/objects/SHA256E-s14--5891b5\n", "a git-annex pointer"},
      {"outs:\n- md5: a304afb96060aad90176268345e10355\n  path: data.txt\n", "a .dvc file"},
      {"<!DOCTYPE html>\n<html lang=\"en\">", "an HTML page"},
      {"\n  <html><body>", "an HTML page"},
      {"<html lang=\"en\">\n", "an HTML page"},
      {"<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\">\n", "an HTML page"},
      {"070701000AF5C2000081A4", "a cpio archive"},
      {"\xC7\x71\0\xFE\xB8\x28\xA4\x81\0\0\0\0\x01\0\0\0\x08k"s, "a cpio archive"},
      {"\x02\x21\x4C\x18\x05\0\0\0"s, "lz4 data"},
      {"PK\x03\x04\x14\0\0\0\0\0"s + std::string(20, 'x') + "mimetypeapplication/epub+zip",
       "an EPUB"},
      // Version 1.0, which the header of an entry without compression has, is a line feed.
      {"PK\x03\x04\x0A\0\0\0\0\0"s + std::string(20, 'x') + "mimetypeapplication/epub+zip",
       "an EPUB"},
      {"PK\x03\x04\x0A\0\0\0\0\0"s + std::string(20, 'x') + "[Content_Types].xml",
       "an office document"},
      {"fLaC\0\0\0\x22"s, "a sound"},
      {"BM\x36\x10\x0E\0\0\0\0\0"s, "a BMP picture"},
      {"MZ\x90\0\x03\0\0\0\x04\0\0\0\xFF\xFF\0\0"s, "a program"},
      {"\xEF\xBB\xBF<!-- saved -->\n<HTML>", "an HTML page"},
      {"<?xml version=\"1.0\"?><!DOCTYPE html PUBLIC", "an HTML page"},
      {"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code>",
       "a server's error message"},
      {"404: Not Found", "a server's error message ('404: Not Found')"},
      {"Entry not found", "a server's error message"},
      // These are files of these tools.
      {"QLTOKENS\x01\0\0\0"s,
       "this is a token stream, not plain text in UTF-8; give it through a pipe: qltok decode FILE "
       "|"},
      {"{\n  \"format\": \"ql-vocabulary\",\n", "a file of the format ql-vocabulary"},
      {"{\"format\":\"ql-manifest\",", "a file of the format ql-manifest"},
      // These are records with a field for the text.
      {"{\"text\": \"The cat sat.\"}\n{\"text\": \"\"}\n",
       "JSON with the key text, not plain text in UTF-8; give it through a pipe: jq -r '.text | "
       "strings' FILE | PROGRAM ... -, or, because this loses where a text of several lines "
       "begins, "
       "with a document for each text: jq -r '.text | strings | \"\\f\", .' FILE | qltok encode "
       "--document '^\\f$' ... -, or give --raw"},
      {"{\"format\": \"mine\"}", "JSON with the key format, not"},
      {"{ \"id\": {\"text\": [\"}\", 1]}, \"raw content\": \"the }\\\" cat",
       "JSON with the keys id, raw content, ..., not plain text in UTF-8; give it through a pipe: "
       "jq -r '.[\"raw content\"] | strings' FILE |"},
      {"[\n {\"n\": 5, \"url\": \"http://x.y\", \"a1\": \"the cat sat on\"}]",
       "JSON with the keys n, url, a1, not plain text in UTF-8; give it through a pipe: jq -r "
       "'.[].a1 | strings' FILE |"},
      {"\xEF\xBB\xBF{\"n\": 5}",
       "JSON with the key n, not plain text in UTF-8; write the text that is in it to a file, with "
       "jq for example, or give --raw"},
      {"id,\"text\"\r\n1,the cat\r\n",
       "a table (CSV) with the columns id, text, not plain text in UTF-8; give it through a pipe: "
       "LC_ALL=C.UTF-8 python3 -c 'import csv, "},
      {"id\tContent\n1\tthe cat\n",
       "a table (TSV) with the columns id, Content, not plain text in UTF-8; give it through a "
       "pipe: tail -n +2 FILE | cut -f 2 | PROGRAM ... -, or, "},
      {"\ttext\n0\tthe cat\n", "pipe: tail -n +2 FILE | cut -f 2 | "},
      {"WARC/1.0\r\nWARC-Type: warcinfo\r\n", "a WARC file"},
      // These are text in other encodings, with a mark and without one.
      {"\xFF\xFE" + widened("The cat", 2, false), "text in UTF-16, "},
      {"\xFE\xFF" + widened("The cat", 2, true), "text in UTF-16, "},
      {"\xFF\xFE\0\0"s + widened("The cat", 4, false), "text in UTF-32, "},
      {"\0\0\xFE\xFF"s + widened("The cat", 4, true), "text in UTF-32, "},
      {widened("The cat sat.", 2, false),
       "text in UTF-16LE, or a file of token ids, not plain text in UTF-8; "
       "give it through a pipe: iconv -f UTF-16LE -t UTF-8 FILE |"},
      {widened("The cat sat.", 2, true), "text in UTF-16BE"},
      {widened("The cat sat.", 4, false), "text in UTF-32LE"},
      {widened("The cat sat.", 4, true), "text in UTF-32BE"},
      // A quotation mark in UTF-16 has no zero byte.
      {widened("She said ", 2, false) + "\x1C\x20" + widened("so it is", 2, false) + "\x1D\x20",
       "text in UTF-16LE"},
      {"\x1F\x04\x40\x04\x38\x04\x32\x04\x35\x04\x42\x04 \0\x3C\x04\x38\x04\x40\x04 \0\x38\x04"s,
       "text in UTF-16LE"},
      {"\x04\x1F\x04\x40\x04\x38\x04\x32\x04\x35\x04\x42\0 \x04\x3C\x04\x38\x04\x40\0 \x04\x38"s,
       "text in UTF-16BE"},
      {"ab"s + std::string(10, '\0') + words.substr(0, 60), "binary data"},
  };
  for (const KindCase& each : cases) {
    CAPTURE(each.head.substr(0, 40));
    CAPTURE(each.said);
    const std::string said =
        test::complaint([&] { check_kind(each.head, Content::kText, "data/text"); });
    if (*each.said == '\0') {
      CHECK(said.empty());
      continue;
    }
    CHECK(said.rfind("data/text: this is ", 0) == 0);
    CHECK(said.find(each.said) != std::string::npos);
    CHECK(test::complaint([&] { check_kind(each.head, Content::kAnything, "x"); }).empty());
  }
}

TEST_CASE("check_kind: every reader takes its own kind and refuses others") {
  const std::string stream = "QLTOKENS\x01\0\0\0"s,
                    pointer = "version https://git-lfs.github.com/spec/v1\n",
                    vocabulary = "{\n  \"format\": \"ql-vocabulary\"",
                    weights = "\x58\x0A\0\0\0\0\0\0{\"a\""s, names = "{\"text\": 5, \"the\": 6}",
                    ids("\x65\0\x66\0\x67\0\x65\0"s);
  struct Row {
    Content expected;
    std::vector<std::string> taken, refused;
  };
  const std::vector<Row> rows = {
      {Content::kText, {kSentence}, {stream, pointer, vocabulary, weights, names, ids}},
      {Content::kTextIds, {"5 6 7\n"}, {stream, pointer, vocabulary, weights, ids}},
      {Content::kRawIds,
       // The first id of the last file, 29127, is also the first field of an old cpio archive.
       {ids, "\xFF\xFE\x01\0"s, "the", "MZ\0\0\x0D\0\0\0\x05\0\0\0\x07\0\0\0"s,
        "\xC7\x71\x05\0\x09\0\x07\0\x05\0\x03\0\x11\x01\x02\0"s},
       {"The cat sat on the mat, and slept there.\n", stream, pointer, vocabulary, weights}},
      {Content::kTokenStream, {stream}, {pointer, vocabulary, weights, ids}},
      {Content::kVocabulary,
       {vocabulary, names, "the\ncat\n", "text\t500\nthe\t400\n",
        "{\"version\": \"1.0\", \"truncation\": null}", "{\"0\": \"<unk>\", \"1\": \"the\"}"},
       {stream, pointer, weights, "{\"text\": \"the cat\"}", "{\"a\": 5}\n{\"a\": 6}",
        "[{\"token\": \"the\"}]"}},
      {Content::kJson, {vocabulary, names}, {stream, pointer, weights}},
      {Content::kWeights, {weights}, {stream, pointer, vocabulary}}};
  for (const Row& row : rows) {
    CAPTURE(static_cast<int>(row.expected));
    for (const std::string& head : row.taken) {
      CHECK(test::complaint([&] { check_kind(head, row.expected, "f"); }) == "");
    }
    for (const std::string& head : row.refused) {
      CAPTURE(head);
      CHECK(test::complaint([&] { check_kind(head, row.expected, "f"); }).find("f: this is ") == 0);
    }
  }
  const std::string said = test::complaint([&] { check_kind(ids, Content::kTokenStream, "f"); });
  CHECK(said.find(
            "this is text in UTF-16LE, or a file of token ids, not a token stream; give it "
            "through a pipe: iconv -f UTF-16LE -t UTF-8 FILE | qltok encode --vocab VOCAB | ") !=
        said.npos);
  CHECK(test::complaint([&] { check_kind("PK\x03\x04 and more", Content::kWeights, "f"); }) ==
        "f: this is a zip archive, not weights (safetensors); convert the weights as "
        "PUBLISHED WEIGHTS in ql-checkpoint(5) says");
  const std::string pytorch = "PK\x03\x04" + std::string(26, '\0') + "cache/data.pkl";
  CHECK(test::complaint([&] { check_kind(pytorch, Content::kVocabulary, "f"); }) ==
        "f: this is a file of PyTorch, not a vocabulary; print its tokens with Python, as "
        "share/doc/transformer-xl.md says");
  CHECK(test::complaint([&] { check_kind(pytorch, Content::kJson, "f"); }) ==
        "f: this is a file of PyTorch, not JSON; convert the weights as PUBLISHED WEIGHTS in "
        "ql-checkpoint(5) says");
  CHECK(said.find(", or pack it with qlbin pack --input u16 or u32 if") != said.npos);
}

TEST_CASE("outlook: a kind is final as soon as it says so") {
  const std::vector<std::string> heads = {kSentence + kSentence,
                                          "\x1F\x8B\x08\0 and more"s,
                                          "QLTOKENS\x01\0\0\0"s,
                                          tar_header(),
                                          "version https://git-lfs.github.com/spec/v1\noid",
                                          "\xEF\xBB\xBF\n <!DOCTYPE html>\n<html>",
                                          "{\n  \"format\": \"ql-manifest\"",
                                          "\x50\x2A\x4D\x18\x04\0\0\0\x28\xB5\x2F\xFD"s,
                                          "%PDF-1.7\n",
                                          widened("a\nb", 2, false),
                                          "the\n\n{\"format\": \"ql-x\"",
                                          "[{\"format\": \"a\"}, {\"b",
                                          "id,text\n5,6\n"};
  for (const std::string& head : heads) {
    CAPTURE(head.substr(0, 30));
    const FileKind kind = file_kind(head);
    for (std::size_t size = 1; size <= head.size(); ++size) {
      if (outlook(head.substr(0, size)) == Outlook::kFinal)
        CHECK(file_kind(head.substr(0, size)) == kind);
    }
  }
  // A line of text need not wait for the next one. After a pause only text may follow.
  for (const char* line : {"\n", " \n\n", "{\n", "<!-- x\n", "<?php echo 1;\n"}) {
    CHECK(outlook(line) != Outlook::kOpen);
  }
  for (const char* line : {"the cat\n", "x\n", "<p>\n", "Prologue\n", "7\n", "[1]\n", "{1}\n"}) {
    CHECK(outlook(line) == Outlook::kFinal);
  }
}

}  // namespace
}  // namespace ql
