// Makes the option table of qlbin.

#include <fmt/format.h>

#include "base/options.h"
#include "base/strings.h"
#include "base/tool.h"
#include "interop/formats.h"
#include "tables.h"

using namespace ql;

static Option interop_format() {
  return required(without_default(
      make_choice("format", "FORMAT",
                  "Format of the files: that of llm.c, that of nanoGPT (u16 ids and nothing else), "
                  "that of Megatron, or u32 (ids of 4 bytes and nothing else).",
                  all_names<interop::Format>())));
}

static Option output_folder(const char* help) {
  return required(with_letter('o', make_option("output", OptionType::kFolder, "DIR", help)));
}

// pack, import and merge have these options in common.
static std::vector<Option> writing_options() {
  Option level = make_integer(
      "level",
      "Compression level of zstd, or 0, which hardly searches for repetitions and packs nearly "
      "twice as fast as level 1. Higher levels make smaller shards and take longer to pack. "
      "Default: 0 "
      "for vocabularies of more than 1,024 entries, whose ids seldom repeat in runs (shards of "
      "words are then 5 to 9 % larger than at level 1), otherwise 1.",
      "", 0, 22);
  return {output_folder("Folder to make. It appears complete or not at all."),
          make_integer("shard-tokens", "Tokens in a shard; the last shard may have fewer.", "64M",
                       1, INT64_MAX),
          make_integer("frame-tokens",
                       "Tokens in a frame, which is decompressed as a unit. Larger frames compress "
                       "better; smaller frames make random access faster.",
                       "64Ki", 1, std::int64_t{32} << 20),
          level,
          make_flag("without-vocabulary",
                    "Leave the text of the vocabulary out of DIR, and record only its hash. This "
                    "makes the parts of a corpus smaller. A merge takes the text from the first "
                    "part that has it, or from --vocab."),
          make_flag("force",
                    "Replace DIR when it holds packed data. A folder with anything else in it is "
                    "never replaced."),
          threads_option(
              "The files are the same for every N, except for the command line that they record.")};
}

// Returns the options for merge. Sizes and level have no defaults here, because giving any of these
// options makes merge pack the tokens anew.
static std::vector<Option> merging_options() {
  std::vector<Option> options = writing_options();
  for (Option& option : options) {
    if (option.name != "shard-tokens" && option.name != "frame-tokens" && option.name != "level") {
      continue;
    }
    option.default_value.clear();
    option.help += " With this option, merge packs the tokens anew.";
    if (option.name == "shard-tokens") option.help += " Default, when packing anew: 64M.";
    if (option.name == "frame-tokens") option.help += " Default, when packing anew: 64Ki.";
  }
  return options;
}

// pack and import have these options in common. `input` names, for --help, the input that has no
// vocabulary.
static std::vector<Option> vocabulary_options(const std::string& input, const char* eos_help) {
  return {make_option(
              "vocab", OptionType::kFile, "VOCAB",
              fmt::format("The vocabulary file, or a folder that has one, for {}. DIR records "
                          "the vocabulary and counts of the decoded text: bytes, words and lines.",
                          input)),
          make_integer("vocab-size",
                       "Number of entries in the vocabulary, for ids without a vocabulary file. "
                       "All ids must be below this number.",
                       "", 1, std::int64_t{1} << 32),
          make_integer("eos", eos_help, "", 0, (std::int64_t{1} << 32) - 1)};
}

static Command pack() {
  return {
      "pack",
      "pack tokens into a folder of shards",
      "[FILE|-]",
      joined(joined(writing_options(),
                    {make_choice(
                         "input", "FORMAT",
                         "What FILE holds: a token stream; text with decimal ids, one line per "
                         "document; or little-endian ids of 2 or 4 bytes, which form one document.",
                         {"stream", "ids", "u16", "u32"}),
                     raw_option()}),
             vocabulary_options("ids without a vocabulary",
                                "Id of the end-of-sentence token, if --vocab is not given.")),
      {{"qltok encode --vocab vocab.json train.txt | qlbin pack -o data/train", "Pack a text"},
       {"qlbin pack -o data/train --input u16 --vocab-size 50257 train.bin",
        "Pack ids that another program wrote"}}};
}

static Command info() {
  return {"info",
          "print what packed data holds",
          "MANIFEST...",
          {make_choice(
               "format", "FORMAT",
               "Form of the output: human-readable text, a line of tab-separated values per "
               "MANIFEST under a line of column names, or a JSON list with an object per MANIFEST.",
               {"text", "tsv", "json"}),
           columns_option([] {
             const shard::Manifest none;
             return keys_of(shard::summary_row("", none));
           })},
          {{"qlbin info data/train data/valid", "Two data sets"},
           {"qlbin info --format json data/train | jq '.[0].tokens'", "In a script"}}};
}

static Command verify() {
  return {"verify",
          "read everything and name every damaged place",
          "MANIFEST...",
          {threads_option("The findings are the same for every N.")},
          {{"qlbin verify data/*", "After copying data from elsewhere"}}};
}

static Command cat() {
  return {
      "cat",
      "write packed tokens as a stream, as text or as plain ids",
      "MANIFEST...",
      {make_choice("output", "FORMAT",
                   "What to write: a token stream; text with decimal ids, one line per document; "
                   "or little-endian ids of 2 or 4 bytes.",
                   {"stream", "ids", "u16", "u32"}),
       output_file_option(),
       make_option("range", OptionType::kText, "A:B",
                   "Write only the tokens from A up to but not including B, counted from 0 over "
                   "all MANIFESTs. A missing A means the beginning, a missing B the end. A "
                   "negative A or B counts from the end, so -5k: means the last 5,000 tokens."),
       make_option(
           "documents", OptionType::kText, "A:B",
           "Write only the documents from A up to but not including B, in the form of --range."),
       threads_option(
           "The output is the same for every N, except for the command line that it records.")},
      {{"qlbin cat --documents 0:3 data/train | qltok decode --vocab vocab.json",
        "Read the first three documents"},
       {"qlbin cat --output ids --range 1M:1000100 data/train", "Look at some ids"},
       {"qlbin cat --documents -2: data/train | qltok decode", "Read the last two documents"}}};
}

static Command merge() {
  return {
      "merge",
      "join several folders into one",
      "[MANIFEST...]",
      joined(merging_options(), {files_from_option(),
                                 make_option("vocab", OptionType::kFile, "VOCAB",
                                             "The vocabulary file, or a folder that has one, for "
                                             "parts that were packed with --without-vocabulary.")}),
      {{"qlbin merge -o data/all data/part-*", "Join parts that were made in parallel"},
       {"qlbin merge -o data/small --level 19 data/train", "Pack the same tokens more tightly"}}};
}

static Command import_files() {
  return {
      "import",
      "pack token files of other programs",
      "FILE...",
      joined(
          joined(writing_options(),
                 vocabulary_options("the ids",
                                    "Id of the end-of-sentence token, if --vocab is not given. "
                                    "Except in Megatron's files, this token ends a document; "
                                    "without such a token all FILEs are one document.")),
          {interop_format(),
           make_flag(
               "eos-first",
               "<eos> begins a document instead of ending it, as in the files of llm.c's scripts. "
               "There its id is 50256 (GPT-2's vocabulary) or 128000 (that of Llama 3)."),
           make_flag("raw",
                     "Read every FILE as ids of --format nanogpt or u32, also if its first bytes "
                     "are those of a compressed file, an archive or another wrong kind.")}),
      {{"qlbin import --format llmc -o data/train --vocab-size 50257 --eos 50256 --eos-first "
        "fineweb_train_*.bin",
        "Files of llm.c's scripts"},
       {"qlbin import --format megatron -o data/all --vocab-size 50257 my_text_document",
        "Megatron's my_text_document.bin and my_text_document.idx"},
       {"qlbin import --format nanogpt -o data/train --vocab gpt2.json train.bin",
        "Ids with the vocabulary that qltok vocab --import made"}}};
}

static Command export_folders() {
  return {"export",
          "write token files for other programs",
          "MANIFEST...",
          {output_folder("Folder to make; it must be empty or must not exist yet. It appears "
                         "complete or not at all. The files in it are named after it."),
           interop_format(),
           make_integer("file-tokens",
                        "Tokens in each file of the format llmc; the last file may have fewer.",
                        "100M", 1, INT32_MAX),
           threads_option("The files are the same for every N.")},
          {{"qlbin export --format nanogpt -o out/train data/train",
            "Make out/train/train.bin for nanoGPT"}}};
}

ToolTable qlbin_table() {
  return {"qlbin",
          "Pack token ids into compressed shards and read them back.",
          {pack(), info(), verify(), cat(), merge(), import_files(), export_folders()}};
}
