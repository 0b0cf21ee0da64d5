// Recognizes files by tables of patterns, and advises users how to get the content of each kind.

#include "base/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/provenance.h"
#include "base/records.h"
#include "base/strings.h"

namespace ql {
namespace {

using namespace std::string_view_literals;

// kCutOff: the bytes read so far (the head) end before the pattern does.
enum class Match { kNo, kYes, kCutOff };

struct Row {
  FileKind kind;
  std::size_t offset;  // offset of the pattern in the file
  // In the table kBinary, '?' matches any byte and '#' a hexadecimal digit. In kTexts, a space
  // matches any whitespace or none, a letter matches its upper and lower case, '*' matches
  // everything up to a quotation mark, and '>' matches '>' or whitespace.
  std::string_view pattern;
  const char* name;
  const char* command = "";  // writes the content to a pipe; FILE may be "-" unless wants_file
  const char* advice = "";   // used where no command exists
  bool wants_file = false;   // the command reads files only
  const char* tokens = "";   // the advice where a vocabulary is expected, if it differs
};

constexpr const char* kExport = "export its content to a plain file with the program that made it";
constexpr const char* kColumn =
    "export the column that is needed to a plain file with the program that made it";
constexpr const char* kPlainText = "save it as plain text in UTF-8";
constexpr const char* kNumpy =
    "write its ids with numpy.load(FILE).astype('<u4').tofile('ids.bin'), and give ids.bin to "
    "qlbin pack --input u32";
// The following ways write the tokens of a vocabulary to a file for qltok vocab --import.
constexpr const char* kPickle =
    "write its tokens as JSON with Python, if you trust the file, because pickle runs code from "
    "it: for the meta.pkl of nanoGPT json.dump(pickle.load(open('FILE', 'rb'))['stoi'], "
    "open('tokens.json', 'w')), and import tokens.json; for the vocab.pkl of Transformer-XL with "
    "['sym2idx'], and --type word";
constexpr const char* kGgufTokens =
    "write its tokens as JSON: head -c 100M FILE | perl -MJSON::PP -0777 -ne "
    "'/tokenizer\\.ggml\\.tokens\\x09\\0\\0\\0\\x08\\0\\0\\0/g and print "
    "JSON::PP->new->encode([unpack \"Q</(Q</a)\", substr $_, pos])' > tokens.json, and import "
    "tokens.json";
constexpr const char* kLlmcTokens =
    R"(write its tokens to a list: perl -0777 -ne 'for (unpack "x1024 (C/a)*", $_) )"
    R"({ s/(.)/sprintf "\\x%02X", ord $1/ges; print "$_\n" }' FILE > LIST, )"
    "and import LIST with --type piece";
constexpr const char* kLlmc = "import it with qlbin import --format llmc";
constexpr const char* kFetchAgain = "download the file again if a server sent this in its place";

// A pattern fixes at least three bytes. Two bytes would match every file that begins with a certain
// 16-bit id. A pattern is ASCII text, has control characters, or has bytes that UTF-8 text cannot
// have at these offsets.
constexpr std::array kBinary = {
    Row{FileKind::kGzip, 0, "\x1F\x8B\x08"sv, "gzip data", "gzip -dc FILE"},
    Row{FileKind::kZstd, 0, "\x28\xB5\x2F\xFD"sv, "zstd data", "zstd -dc FILE"},
    // A file may begin with skippable frames; pzstd writes one.
    Row{FileKind::kZstd, 0, "?\x2A\x4D\x18"sv, "zstd data", "zstd -dc FILE"},
    Row{FileKind::kTokenStream, 0, "QLTOKENS"sv, "a token stream", "qltok decode FILE"},
    // A zip archive has its first entry's name at offset 30.
    Row{FileKind::kOther, 0, "PK\x03\x04??????????????????????????mimetypeapplication/"sv,
        "an EPUB or OpenDocument file", "", kPlainText},
    Row{FileKind::kOther, 0, "PK\x03\x04??????????????????????????[Content_Types].xml"sv,
        "an office document", "", kPlainText},
    Row{FileKind::kOther, 0, "PK\x03\x04"sv, "a zip archive", "unzip -p FILE", "", true},
    Row{FileKind::kOther, 0, "PK\x05\x06"sv, "an empty zip archive"},
    Row{FileKind::kOther, 0, "\xFD\x37zXZ\0"sv, "xz data", "xzcat FILE"},
    Row{FileKind::kOther, 0, "\x5D\0\0??\xFF\xFF\xFF\xFF"sv, "lzma data", "xzcat FILE"},
    Row{FileKind::kOther, 0, "BZh?1AY&SY"sv, "bzip2 data", "bzcat FILE"},
    Row{FileKind::kOther, 0, "BZh?\x17\x72\x45\x38\x50\x90"sv, "empty bzip2 data"},
    Row{FileKind::kOther, 0, "\x04\x22\x4D\x18"sv, "lz4 data", "lz4 -dc FILE"},
    Row{FileKind::kOther, 0, "\x02\x21\x4C\x18"sv, "lz4 data", "lz4 -dc FILE"},
    Row{FileKind::kOther, 0, "LZIP\x01"sv, "lzip data", "lzip -dc FILE"},
    Row{FileKind::kOther, 0, "\x89LZO\0\r\n\x1A\n"sv, "lzop data", "lzop -dc FILE"},
    Row{FileKind::kOther, 0, "\x1F\x9D\x90"sv, "Unix compress data (.Z)", "gzip -dc FILE"},
    Row{FileKind::kOther, 0, "7z\xBC\xAF\x27\x1C"sv, "a 7z archive", "7z x -so FILE", "", true},
    Row{FileKind::kOther, 0, "Rar!\x1A\x07"sv, "a rar archive", "unrar p -inul FILE", "", true},
    Row{FileKind::kOther, 257, "ustar"sv, "a tar archive", "tar -xOf FILE"},
    Row{FileKind::kOther, 0, "070701########"sv, "a cpio archive"},
    // With the three zeros, the first file has fewer than 256 links and is not a device.
    Row{FileKind::kOther, 0, "\xC7\x71???????????\0\0\0"sv, "a cpio archive"},
    Row{FileKind::kOther, 0, "!<arch>\n"sv, "an ar archive (.a, .deb)"},
    Row{FileKind::kOther, 0, "\x93NUMPY"sv, "a NumPy array (.npy)", "", kNumpy},
    Row{FileKind::kOther, 0, "\x80\x02\x7Dq"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\x80\x02]q"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\x80\x02\x63"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\x80\x03\x7Dq"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\x80\x03]q"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\x80\x03\x63"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\x80\x04\x95"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\x80\x05\x95"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "(dp0\n"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "(lp0\n"sv, "a Python pickle", "", kExport, false, kPickle},
    Row{FileKind::kOther, 0, "\xC8\xD7\x34\x01?\0\0\0"sv, "the tokenizer.bin of llm.c", "", "",
        false, kLlmcTokens},
    Row{FileKind::kLlmc, 0, "\x88\xD8\x34\x01\x01\0\0\0"sv, "a token file of llm.c", "", kLlmc},
    Row{FileKind::kLlmc, 0, "\xA1\xD9\x34\x01\x07\0\0\0"sv, "a token file of llm.c", "", kLlmc},
    Row{FileKind::kOther, 0, "PAR1\x15"sv, "a Parquet file", "", kColumn},
    Row{FileKind::kOther, 0, "ARROW1\0\0"sv, "an Arrow file", "", kColumn},
    Row{FileKind::kOther, 0, "\xFF\xFF\xFF\xFF??\0\0\x10\0\0\0"sv, "an Arrow stream", "", kColumn},
    Row{FileKind::kOther, 0, "\x89HDF\r\n\x1A\n"sv, "an HDF5 file", "", kExport},
    Row{FileKind::kOther, 0, "SQLite format 3\0"sv, "an SQLite database", "", kExport},
    Row{FileKind::kOther, 0, "GGUF?\0\0\0"sv, "a GGUF model", "", "", false, kGgufTokens},
    Row{FileKind::kOther, 0, "MMIDIDX\0\0"sv, "the index of Megatron's or fairseq's token files",
        "", "import it and its .bin with qlbin import --format megatron"},
    Row{FileKind::kWeights, 0, "???\0\0\0\0\0{\""sv, "a file of weights (safetensors)"},
    Row{FileKind::kOther, 0, "WARC/?."sv, "a WARC file of web pages", "",
        "write the text of its pages to a plain file with a program that reads WARC"},
    Row{FileKind::kOther, 0, "%PDF-"sv, "a PDF document", "pdftotext FILE -", "", true},
    Row{FileKind::kOther, 0, "%!PS-Adobe"sv, "a PostScript document", "ps2ascii FILE", "", true},
    Row{FileKind::kOther, 0, "{\\rtf1"sv, "an RTF document", "", kPlainText},
    Row{FileKind::kOther, 0, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv, "an office document", "",
        kPlainText},
    Row{FileKind::kOther, 0, "\x7F\x45LF"sv, "a program"},
    Row{FileKind::kOther, 0, "\x89PNG\r\n\x1A\n"sv, "a PNG picture"},
    Row{FileKind::kOther, 0, "\xFF\xD8\xFF"sv, "a JPEG picture"},
    Row{FileKind::kOther, 0, "GIF8?a"sv, "a GIF picture"},
    Row{FileKind::kOther, 0, "\0\0\0?ftyp"sv, "a film or sound (MP4), or a picture (HEIF)"},
    Row{FileKind::kOther, 0, "RIFF????WAVE"sv, "a sound (WAVE)"},
    Row{FileKind::kOther, 0, "RIFF????WEBP"sv, "a WebP picture"},
    Row{FileKind::kOther, 0, "RIFF????AVI "sv, "a film (AVI)"},
    Row{FileKind::kOther, 0, "OggS\0"sv, "a film or sound (Ogg)"},
    Row{FileKind::kOther, 0, "fLaC\0"sv, "a sound (FLAC)"},
    Row{FileKind::kOther, 0, "ID3?\0"sv, "a sound (MP3)"},
    Row{FileKind::kOther, 0, "\x1A\x45\xDF\xA3"sv, "a film or sound (WebM, Matroska)"},
    Row{FileKind::kOther, 0, "II*\0"sv, "a TIFF picture"},
    Row{FileKind::kOther, 0, "MM\0*"sv, "a TIFF picture"},
    Row{FileKind::kOther, 0, "BM????\0\0\0\0"sv, "a BMP picture"},
    Row{FileKind::kOther, 0, "MZ?\0?\0?\0?\0?\0\xFF\xFF\0\0"sv, "a program"},
    Row{FileKind::kOther, 0, "\xCA\xFE\xBA\xBE"sv, "a program"},
    Row{FileKind::kOther, 0, "\0asm"sv, "a program"},
};

// These texts stand in place of a file that is elsewhere, or they are JSON files.
constexpr std::array kTexts = {
    Row{FileKind::kOther, 0, "version https://git-lfs.github.com/spec/"sv,
        "a Git LFS pointer in place of the file", "", "fetch the file: git lfs pull"},
    Row{FileKind::kOther, 0, "/annex/objects/"sv, "a git-annex pointer in place of the file", "",
        "fetch the file: git annex get FILE"},
    Row{FileKind::kOther, 0, "outs: - md5:"sv, "a .dvc file in place of the file", "",
        "fetch the file with dvc pull, and give its name"},
    Row{FileKind::kOther, 0, "<!doctype html>"sv, "an HTML page", "", kFetchAgain},
    Row{FileKind::kOther, 0, "<html>"sv, "an HTML page", "", kFetchAgain},
    Row{FileKind::kOther, 0, "<error> <code>"sv, "a server's error message (XML)", "", kFetchAgain},
    Row{FileKind::kOwnJson, 0, "{ \"format\" : \"ql-*\""sv, "a JSON file of these tools"},
};

// Servers send these texts, without a line feed, in place of a file.
constexpr std::array kErrorPages = {"Entry not found"sv,
                                    "404: Not Found"sv,
                                    "Not Found"sv,
                                    "Repository not found"sv,
                                    "Invalid username or password."sv,
                                    "Access denied"sv,
                                    "Forbidden"sv};

Match match_binary(const Row& row, std::string_view head) {
  bool line_ended = false;
  for (std::size_t i = 0; i < row.pattern.size(); ++i) {
    // `head`, the bytes read so far, ends before the pattern does. kCutOff makes the caller wait
    // for more bytes. If a '?' (any byte) has matched a line feed, `head` is most likely a line
    // of text, which is passed on at once.
    if (row.offset + i >= head.size()) return line_ended ? Match::kNo : Match::kCutOff;
    const char found = head[row.offset + i];
    const char wanted = row.pattern[i];
    const bool matches = wanted == '#' ? std::isxdigit(static_cast<unsigned char>(found)) != 0
                                       : wanted == '?' || wanted == found;
    if (!matches) return Match::kNo;
    line_ended = line_ended || (row.pattern[i] == '?' && found == '\n');
  }
  return Match::kYes;
}

void skip_blanks(std::string_view& text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
}

// Removes everything that may stand before the first element of an HTML page: a byte order mark,
// whitespace, declarations <?...?> and comments. Returns false when the text ends within these or
// directly after them.
bool skip_prologue(std::string_view& text) {
  if (begins_with_mark(text)) text.remove_prefix(kByteOrderMark.size());
  for (;;) {
    skip_blanks(text);
    constexpr std::string_view kComment = "<!--", kDeclaration = "<?";
    const bool comment = text.substr(0, kComment.size()) == kComment.substr(0, text.size());
    const bool declaration =
        text.substr(0, kDeclaration.size()) == kDeclaration.substr(0, text.size());
    if (!comment && !declaration) return true;
    const std::string_view end = comment ? "-->"sv : "?>"sv;
    const std::size_t at = text.find(end);
    if (at == std::string_view::npos) return false;
    text.remove_prefix(at + end.size());
  }
}

Match match_text(const Row& row, std::string_view text) {
  for (const char expected : row.pattern) {
    if (expected == ' ') {
      skip_blanks(text);
      continue;
    }
    if (expected == '*') text.remove_prefix(std::min(text.find('"'), text.size()));
    if (text.empty()) return Match::kCutOff;
    if (expected == '*' || (expected == '>' && is_blank(text.front()))) continue;
    if (expected != std::tolower(static_cast<unsigned char>(text.front()))) return Match::kNo;
    text.remove_prefix(1);
  }
  return Match::kYes;
}

// `row` is the row of kBinary or kTexts that a file's first bytes match, or null. Only a file
// without a row may have records. The flags say whether a row of kBinary, or one of kTexts or other
// records, could match when more is read.
struct Found {
  const Row* row = nullptr;
  std::optional<Records> records;
  bool binary_possible = false, text_possible = false;
};

Found find_kind(std::string_view head) {
  Found found;
  const auto look = [&](const Row& row, Match match, bool& possible) {
    if (match == Match::kYes && found.row == nullptr) found.row = &row;
    possible = possible || match == Match::kCutOff;
  };
  for (const Row& row : kBinary) {
    // The header of a tar archive has no line feed before offset 257, and most text has one.
    const bool possible = row.offset == 0 || head.substr(0, row.offset).find('\n') == head.npos;
    if (possible) look(row, match_binary(row, head), found.binary_possible);
  }
  std::string_view text = head;
  found.text_possible = !skip_prologue(text);
  for (const Row& row : kTexts) look(row, match_text(row, text), found.text_possible);
  if (found.row != nullptr) return found;
  // A tab at the beginning follows the empty name of a table's first column.
  while (text.data() > head.data() && *std::prev(text.data()) == '\t') {
    text = std::string_view(std::prev(text.data()), text.size() + 1);
  }
  found.records = find_records(text, found.text_possible);
  found.text_possible = found.text_possible || (found.records && !found.records->complete);
  return found;
}

// Examines every `step`-th byte from offset `first` on. Returns the share of these bytes, from 0 to
// 1, that are below `end`.
double share_below(std::string_view head, std::size_t first, std::size_t step, unsigned char end) {
  double below = 0, all = 0;
  for (std::size_t i = first; i < head.size(); i += step) {
    all += 1;
    below += static_cast<unsigned char>(head[i]) < end ? 1 : 0;
  }
  return all == 0 ? 0 : below / all;
}

// Returns iconv's name of the encoding, or "" for anything except UTF-16 and UTF-32. In UTF-16 the
// upper byte of a character is below 0x20 in most alphabets, and zero for whitespace and ASCII. The
// lower byte is most often at least 0x20.
const char* encoding_without_mark(std::string_view head) {
  constexpr double kNearlyAll = 0.95, kMost = 0.8, kSome = 0.03, kHalf = 0.4, kFew = 0.05;
  constexpr std::size_t kShort = 8;
  const double fewest_zeros = head.size() < kShort ? 1 : kSome;
  if (head.size() < 4) return "";
  const auto zeros = [&](std::size_t place) { return share_below(head, place, 4, 1); };
  if (zeros(3) >= kNearlyAll && zeros(2) >= kNearlyAll && zeros(0) <= kFew) return "UTF-32LE";
  if (zeros(0) >= kNearlyAll && zeros(1) >= kNearlyAll && zeros(3) <= kFew) return "UTF-32BE";
  for (const std::size_t upper : {1, 0}) {
    constexpr unsigned char kBlank = ' ';
    if (share_below(head, upper, 2, kBlank) >= kMost &&
        share_below(head, upper, 2, 1) >= fewest_zeros &&
        share_below(head, 1 - upper, 2, kBlank) <= kHalf) {
      return upper == 1 ? "UTF-16LE" : "UTF-16BE";
    }
  }
  return "";
}

const char* encoding_of(std::string_view head) {
  if (head.substr(0, 4) == "\xFF\xFE\0\0"sv || head.substr(0, 4) == "\0\0\xFE\xFF"sv) {
    return "UTF-32";
  }
  if (head.substr(0, 2) == "\xFF\xFE"sv || head.substr(0, 2) == "\xFE\xFF"sv) return "UTF-16";
  return encoding_without_mark(head);
}

// Returns true if the head is at least 32 visible or blank characters of ASCII: text in place of
// ids. Ids of two bytes that look like this would all lie from 2,313 to 32,382.
bool is_ascii_text(std::string_view head) {
  constexpr std::size_t kEnough = 32;
  const auto is_visible = [](char c) { return (c >= ' ' && c <= '~') || is_blank(c); };
  return head.size() >= kEnough && std::all_of(head.begin(), head.end(), is_visible);
}

// Ids, programs and pictures have many zero bytes. Text has hardly any.
bool is_binary(std::string_view head) {
  constexpr std::size_t kEnough = 64;
  const auto zeros = static_cast<std::size_t>(std::count(head.begin(), head.end(), '\0'));
  return head.size() >= kEnough && zeros * 10 >= head.size();
}

// These names are for errors, in the order of Content. kAnything needs none, because it accepts
// every file.
constexpr std::array kContentNames = {
    "plain text in UTF-8", "decimal ids",     "token ids", "a token stream",
    "a vocabulary",        "a list of names", "JSON",      "weights (safetensors)"};
static_assert(kContentNames.size() == static_cast<std::size_t>(Content::kAnything));

// Returns the command for a FILE that `packed_by` decompresses first, such as "gzip -dc", or the
// command itself if `packed_by` is "".
std::string command_for(std::string command, bool wants_file, const std::string& packed_by) {
  if (packed_by.empty()) return command;
  command.replace(command.rfind("FILE"), std::string_view("FILE").size(),
                  wants_file ? "UNPACKED" : "-");
  return fmt::format("{} FILE {} {}", packed_by, wants_file ? "> UNPACKED &&" : "|", command);
}

// Returns advice to get the expected content by running `command` on FILE.
std::string advice_to_run(std::string command, bool wants_file, Content expected,
                          const std::string& packed_by) {
  const bool takes_pipes = expected == Content::kText || expected == Content::kTextIds ||
                           expected == Content::kTokenStream;
  command = command_for(std::move(command), wants_file, packed_by);
  if (!takes_pipes) return fmt::format("give its content in a file: {} > OTHER", command);
  return fmt::format("give it through a pipe: {} | {} ... -", command, invoked_tool());
}

[[noreturn]] void refuse(const std::string& name, const std::string& kind, Content expected,
                         const std::string& advice, const std::string& packed_by) {
  std::string raw;
  if (expected == Content::kText) {
    raw = packed_by.empty() ? "give --raw to take it as it is"
                            : fmt::format("take it as it is: {} FILE | {} ... --raw -", packed_by,
                                          invoked_tool());
  }
  throw FormatError(
      name,
      fmt::format("this is {}, not {}", kind, kContentNames[static_cast<std::size_t>(expected)]),
      advice.empty() || raw.empty() ? advice + raw : advice + ", or " + raw);
}

void refuse_row(const Row& row, std::string_view head, Content expected, const std::string& name,
                const std::string& packed_by) {
  std::string kind = row.name, advice = row.advice;
  if (*row.command != '\0') {
    advice = advice_to_run(row.command, row.wants_file, expected, packed_by);
  }
  // PyTorch stores its objects in a zip archive, whose first member is NAME/data.pkl.
  if (kind == "a zip archive") {
    constexpr std::size_t kFirstName = 300;
    const bool pytorch = head.substr(0, kFirstName).find("/data.pkl") != head.npos;
    if (pytorch) kind = "a file of PyTorch";
    if (pytorch && expected == Content::kVocabulary) {
      advice = "print its tokens with Python, as share/doc/transformer-xl.md says";
    } else if (expected == Content::kWeights || (pytorch && expected == Content::kJson)) {
      advice = "convert the weights as PUBLISHED WEIGHTS in ql-checkpoint(5) says";
    }
  }
  if (expected == Content::kVocabulary && *row.tokens != '\0') advice = row.tokens;
  if (row.kind == FileKind::kOwnJson) {
    const std::size_t begin = head.find("\"ql-") + 1;
    const std::string_view format = head.substr(begin, head.find('"', begin) - begin);
    kind = fmt::format("a file of the format {}", format);
    if (expected == Content::kNames) {
      advice = "name the file on the command line, without --files-from";
    } else if (format == "ql-manifest") {
      const bool ids = expected == Content::kTextIds || expected == Content::kRawIds;
      advice = expected == Content::kText
                   ? "get the text of its folder with qlbin cat FOLDER | qltok decode"
               : ids ? "its folder has packed data, to pack again with qlbin cat FOLDER | qlbin "
                       "pack -o NEW, without --input"
                     : "give its folder through a pipe: qlbin cat FOLDER";
    } else if (format == "ql-vocabulary") {
      advice = expected == Content::kText
                   ? "give a vocabulary with --vocab or --counts"
                   : "make a token stream with it: qltok encode --vocab VOCAB TEXT";
    }
  }
  if (row.kind == FileKind::kTokenStream && expected != Content::kText) {
    advice = expected == Content::kVocabulary
                 ? "name the vocabulary that it was made with"
                 : "give it to qlbin pack or qltok decode, without --input";
  }
  refuse(name, kind, expected, advice, packed_by);
}

// Refuses records in place of the expected content, unless they may be JSON of another kind.
void refuse_records(const Records& records, Content expected, const std::string& name,
                    const std::string& packed_by) {
  if (records.json && expected == Content::kJson) return;
  if (!records.surely_text && expected == Content::kVocabulary) return;
  const bool ids = expected == Content::kTextIds || expected == Content::kRawIds;
  std::string advice = fmt::format("write the {} in it to a file, with jq for example",
                                   ids ? "ids that are" : "text that is");
  const auto command = [&](const std::string& text) { return command_for(text, false, packed_by); };
  if (records.command.empty()) {
    // No field has text.
  } else if (expected == Content::kVocabulary) {
    advice = fmt::format("make a vocabulary of its text: {} | qltok vocab ... -",
                         command(records.command));
  } else if (ids) {
    advice += fmt::format(
        ", or pack its text without --input: {} | qltok encode --vocab VOCAB | qlbin pack ... -",
        command(records.command));
  } else if (expected == Content::kTokenStream) {
    advice = advice_to_run(records.command + " | qltok encode --vocab VOCAB", false, expected,
                           packed_by);
  } else {
    advice = advice_to_run(records.command, false, expected, packed_by);
  }
  if (!records.command.empty() && expected == Content::kText) {
    advice += fmt::format(
        ", or, because this loses where a text of several lines begins, with a document for each "
        "text: {} | qltok encode --document {} ... -",
        command(records.marking_command), records.rule);
  }
  refuse(name, records.kind, expected, advice, packed_by);
}

}  // namespace

FileKind file_kind(std::string_view head) {
  const Found found = find_kind(head);
  if (found.row != nullptr) return found.row->kind;
  if (!found.records) return FileKind::kUnknown;
  return found.records->json ? FileKind::kJsonText : FileKind::kOther;
}

Outlook outlook(std::string_view head) {
  constexpr std::size_t kEnoughForZeros = 64;
  if (head.size() >= kHeadBytes) return Outlook::kFinal;
  const Found found = find_kind(head);
  if (found.row != nullptr) return Outlook::kFinal;
  const bool zeros = head.size() < kEnoughForZeros && head.find('\0') != head.npos;
  if (found.binary_possible || zeros) return Outlook::kOpen;
  return found.text_possible ? Outlook::kText : Outlook::kFinal;
}

void check_kind(std::string_view head, Content expected, const std::string& name,
                const std::string& packed_by) {
  if (expected == Content::kAnything) return;
  const Found found = find_kind(head);
  if (const Row* const row = found.row) {
    const bool wanted =
        (row->kind == FileKind::kTokenStream && expected == Content::kTokenStream) ||
        (row->kind == FileKind::kWeights && expected == Content::kWeights) ||
        (row->kind == FileKind::kOwnJson &&
         (expected == Content::kVocabulary || expected == Content::kJson));
    if (!wanted) refuse_row(*row, head, expected, name, packed_by);
    return;
  }
  if (found.records) return refuse_records(*found.records, expected, name, packed_by);
  if (std::find(kErrorPages.begin(), kErrorPages.end(), head) != kErrorPages.end()) {
    refuse(name, fmt::format("a server's error message ('{}')", head), expected, kFetchAgain,
           packed_by);
  }
  if (expected == Content::kRawIds && is_ascii_text(head)) {
    refuse(
        name, "text", expected,
        "encode it with qltok encode, or pack it with qlbin pack --input ids if it has decimal ids",
        packed_by);
  }
  const bool may_have_zeros =
      expected == Content::kRawIds || expected == Content::kWeights || expected == Content::kNames;
  if (may_have_zeros) return;
  constexpr const char* kPackIds = "pack it with qlbin pack --input u16 or u32 if it has token ids";
  if (const std::string encoding = encoding_of(head); !encoding.empty()) {
    const bool stream = expected == Content::kTokenStream, text = expected == Content::kText;
    const bool ids = *encoding_without_mark(head) != '\0';
    refuse(name, fmt::format("text in {}{}", encoding, ids ? ", or a file of token ids" : ""),
           expected,
           advice_to_run(fmt::format("iconv -f {} -t UTF-8 FILE{}", encoding,
                                     stream ? " | qltok encode --vocab VOCAB" : ""),
                         false, expected, packed_by) +
               (ids ? fmt::format("{}{}", text ? ", " : ", or ", kPackIds) : ""),
           packed_by);
  }
  if (expected == Content::kText && is_binary(head)) {
    refuse(name, "binary data", expected, kPackIds, packed_by);
  }
}

}  // namespace ql
