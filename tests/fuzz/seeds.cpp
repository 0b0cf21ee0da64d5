// Writes the files that fuzzing starts from: FOLDER/TARGET/NAME. They are small, one for each
// feature of a format.
//
//   fuzz_seeds FOLDER
#include <cstdio>

#include "base/bytes.h"
#include "fuzz/fuzz.h"
#include "interop/token_files.h"
#include "net/model_file.h"
#include "shard/zstd_frame.h"
#include "text/vocabulary_builder.h"
#include "unit/shard_support.h"

namespace {

namespace fs = std::filesystem;
using ql::test::slurp;
using ql::test::spill;

class Seeds {
 public:
  explicit Seeds(fs::path folder) : folder_(std::move(folder)) {}
  void add(const std::string& target, const std::string& name, const std::string& bytes) const {
    fs::create_directories(folder_ / target);
    spill(folder_ / target / name, bytes);
  }
  // Adds the same bytes with each of these modes in front.
  void add(const std::string& target, const std::string& name, const std::string& modes,
           const std::string& bytes) const {
    for (const char mode : modes) add(target, name + "-" + std::to_string(int{mode}), mode + bytes);
  }

 private:
  fs::path folder_;
};

const std::string kRawAndRepaired("\0\1", 2);

std::string le64(std::uint64_t number) {
  std::string bytes;
  ql::append_little_endian(bytes, number);
  return bytes;
}

// Returns a file that qlbin export makes of packed data: NAME + `end`.
std::string exported(const fs::path& data, ql::interop::Format format, const std::string& end) {
  const ql::test::ScratchFolder scratch;
  ql::shard::MultiReader joined({data.string()});
  ql::interop::ExportOptions options;
  options.format = format;
  export_tokens(joined, scratch / "name", options, [](std::int64_t) {});
  return slurp(scratch / "name" / ("name" + end));
}

// Joins Megatron's two files to one input.
std::string pair_of(const std::string& index, const std::string& tokens) {
  std::string bytes;
  ql::append_little_endian(bytes, static_cast<std::uint16_t>(index.size()));
  return bytes + index + tokens;
}

void add_interop(const Seeds& seeds, const std::string& name, const fs::path& data) {
  using ql::interop::Format;
  seeds.add("interop", name + "-llmc", std::string("\0\10", 2),
            exported(data, Format::kLlmc, "_000000.bin"));
  seeds.add("interop", name + "-megatron", "\3",
            pair_of(exported(data, Format::kMegatron, ".idx"),
                    exported(data, Format::kMegatron, ".bin")));
}

void add_interop(const Seeds& seeds) {
  // The ids have 2 or 4 bytes. Two of the ids with 2 bytes are an eos.
  seeds.add("interop", "ids", "\1\2\5\6\11\12\21\31", std::string("\1\0\0\0\2\0\0\0", 8));
  // The types include the widths that qlbin export does not write, with one token each.
  for (const auto& [type, width] : std::vector<std::pair<char, int>>{{1, 1}, {3, 2}, {5, 8}}) {
    const std::string index = std::string("MMIDIDX\0\0", 9) + le64(1) + type + le64(1) + le64(2) +
                              std::string("\1\0\0\0", 4) + le64(0) + le64(0) + le64(1);
    std::string token(static_cast<std::size_t>(width), '\0');
    token[0] = 7;
    seeds.add("interop", "type-" + std::to_string(int{type}), "\3", pair_of(index, token));
  }
}

void add_data(const Seeds& seeds) {
  using namespace ql::shard::test;
  const Documents documents{{1, 2, 3, 4, 5}, {6}, {7, 299}};
  const ql::test::ScratchFolder scratch;
  for (const std::int64_t vocabulary : {300, 70000}) {
    const std::string name = std::to_string(vocabulary);
    const std::string wide(1, vocabulary > 65536 ? '\4' : '\0');
    const auto header = header_of(vocabulary, "{\"a\": 1}");
    seeds.add("token_stream", name, kRawAndRepaired, stream_of(documents, header));
    ql::shard::PackOptions options;
    options.shard_tokens = 6;
    options.frame_tokens = 3;
    const fs::path folder = scratch / name;
    pack(folder, documents, header, options);
    const std::string shard = slurp(folder / "shard-00000.zst");
    seeds.add("shard", name, wide + static_cast<char>(wide[0] | 1), shard);
    seeds.add("shard", name + "-content", std::string(1, static_cast<char>(wide[0] | 2)),
              std::string("\1\0\0\0\2\0\0\0", 8));
    seeds.add("manifest", name, kRawAndRepaired, slurp(folder / "manifest.json"));
    seeds.add("document_starts", name, kRawAndRepaired, le64(8) + slurp(folder / "documents.zst"));
    add_interop(seeds, name, folder);
  }
  seeds.add("token_stream", "empty", kRawAndRepaired, stream_of({}, header_of(3), std::nullopt));
  seeds.add("document_starts", "content", "\2", le64(100) + le64(0) + le64(7) + le64(99));
  seeds.add("document_starts", "claim", "\4", le64(100) + le64(1) + "(\xB5/\xFD");
  seeds.add("ids", "text", std::string(1, '\0'), "1 2 3\n4\r\n\n49999");
  seeds.add("ids", "raw", "\1\2", std::string("\1\0\0\0\2\0\0\0", 8));
  add_interop(seeds);
}

void add_vocabularies(const Seeds& seeds) {
  using namespace ql::text;
  const ql::test::ScratchFolder scratch;
  std::string text;
  for (const char* word : {"the", "cat", "that", "chat", "hat", "é"})
    for (int i = 0; i < 20; ++i) text += std::string(word) + (i % 7 == 0 ? "\n" : " ");
  spill(scratch / "text", text);
  for (const TokenType type :
       {TokenType::kWord, TokenType::kChar, TokenType::kByte, TokenType::kSentencePiece}) {
    VocabularyRules rules;
    rules.type = type;
    if (type == TokenType::kSentencePiece) {
      rules.max_size = 20;
      rules.unk = Presence::kAlways;
    }
    const auto built = build_vocabulary({scratch / "text"}, rules);
    const ql::Json json = ql::parse_json(built.vocabulary.to_text(ql::Json::object()), "v.json");
    seeds.add("vocabulary", ql::to_text(type), kRawAndRepaired, ql::dump_json(json));
    if (type == TokenType::kSentencePiece) {
      seeds.add("vocabulary", "model", "\2\3",
                *ql::base64_decode(json["model"].get<std::string>()));
    }
  }
  seeds.add("vocabulary", "list", "\3\7", "<S> 3\nthe 17\r\n<unk>\n\\xC3\n");
  seeds.add("vocabulary", "tokenizer", "\3", R"({"added_tokens": [{"id": 2, "content": "</s>"}],
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
    "model": {"unk_token": "a", "vocab": {"a": 0, "\u0120the": 1}}})");
  seeds.add("vocabulary", "unigram", "\3", R"({"decoder": {"type": "Metaspace"},
    "model": {"unk_id": 0, "vocab": [["<unk>", 0], ["\u2581the", -1.5], ["<0x41>", 0]]}})");
}

void add_networks(const Seeds& seeds) {
  for (const auto& entry : fs::directory_iterator(QL_SHARE "/presets")) {
    const std::string name = entry.path().stem().string();
    seeds.add("model_json", name, "\1", slurp(entry.path()));
    ql::net::ModelFile model;
    model.network = ql::net::read_preset(entry.path(), {}, {}).network;
    model.training = model.provenance = ql::Json::object();
    seeds.add("model_json", name, std::string(1, '\0'), ql::dump_json(model_file_to_json(model)));
  }
  const std::string preset = slurp(QL_SHARE "/presets/demo-ql.json");
  const std::string overrides("\0segment=8\0scales=2,2\0dropout=0.5\0attention=linear", 50);
  seeds.add("model_json", "overrides", "\1", preset + overrides);
  seeds.add("model_json", "public", "\2",
            R"({"model_type": "transfo-xl", "attn_type": 0, "vocab_size": 1000, "d_model": 64,
"n_head": 4, "d_head": 16, "d_inner": 128, "n_layer": 3, "tgt_len": 32, "mem_len": 64, "clamp_len": 40,
"cutoffs": [100, 300], "div_val": 2, "d_embed": 64, "proj_share_all_but_first": true, "dropout": 0.1,
"same_length": true, "untie_r": true, "tie_projs": [false, true, true], "layer_norm_epsilon": 1e-05})");
}

void add_texts(const Seeds& seeds) {
  const char* const texts[] = {"{}", "[1,-2,0.5,1e3,18446744073709551615]",
                               "\"\\u00e9\\ud83d\\ude00\"",
                               R"({"a":{"b":[null,true,false]},"c":"\n\"\\"})", "[[[[]]]]"};
  int number = 0;
  for (const char* text : texts) seeds.add("json", std::to_string(number++), text);
  const std::vector<std::pair<char, std::vector<std::string>>> lines = {
      {0, {"encode", "--vocab", "v.json", "--eos=line", "--threads", "2", "a.txt", "-"}},
      {0, {"vocab", "--type", "word", "--max-size", "10k", "-o", "v.json"}},
      {1,
       {"pack", "-o", "data", "--shard-tokens=64M", "--frame-tokens", "64Ki", "-qf", "--", "-x"}},
      {1, {"cat", "--range", "0:10", "--output", "ids", "data"}},
      {2, {"-m", "best", "--segment", "4,8", "--memory=12", "--method=exact", "--position", "2"}},
      {2, {"plan", "--context", "4k", "--arch", "ql", "--arch", "xl", "--rate", "2,4"}},
      {3, {"pack", "-oout", "--lengths", "1,2k", "-r", "-2.5e-1", "-s", "a=1"}},
      {3, {"pack", "--help"}}};
  for (const auto& [table, arguments] : lines) {
    std::string bytes(1, table);
    for (const std::string& argument : arguments) bytes += argument + '\0';
    seeds.add("options", std::to_string(number++), bytes);
  }
}

void add_training(const Seeds& seeds) {
  const std::string counts = R"({"step":300,"updates":299,"cursor":310,"elapsed":61.5,"epoch":1,)"
                             R"("position":12,"validation_step":200,"since_best":1,)";
  const std::string rest = R"("since_log":{"steps":4,"loss_sum":25.1,"gradient_norm_sum":1e-300},)"
                           R"("processes":2,"running_loss":{"mean":5.5,"steps":100},)"
                           R"("divergences":{"count":7,"recent":[295,298]},)"
                           R"("data":{"name":"data","hash":"abc","tokens":5000},)"
                           R"("validation":{"name":"valid","hash":"","tokens":0}})";
  seeds.add("training_state", "first", counts + rest);
  seeds.add("training_state", "validated", counts + R"("best":{"step":200,"loss":5.25},)" + rest);
}

void add_tensors(const Seeds& seeds) {
  const std::string one = R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
  const std::string header = "{\"__metadata__\":{\"step\":\"12\"}," + one +
                             R"(,"b":{"dtype":"BOOL","shape":[4],"data_offsets":[24,28]},)"
                             R"("c":{"dtype":"I64","shape":[0,2],"data_offsets":[28,28]}})";
  seeds.add("safetensors", "header", "\10", header);
  seeds.add("safetensors", "one", "\7", "{" + one + "}");
  seeds.add("safetensors", "none", "\1", "{}");
  seeds.add("safetensors", "file", std::string(1, '\0'),
            le64(header.size()) + header + std::string(28, '\0'));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  const Seeds seeds(argv[1]);
  add_data(seeds);
  add_vocabularies(seeds);
  add_networks(seeds);
  add_texts(seeds);
  add_training(seeds);
  add_tensors(seeds);
  return 0;
}
