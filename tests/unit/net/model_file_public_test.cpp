// Tests the public library's config.json.

#include <doctest/doctest.h>

#include "base/error.h"
#include "net/model_file.h"
#include "unit/complaint.h"
#include "unit/scratch.h"

namespace ql::net {
namespace {

// The keys are those of the library's published model of WikiText-103, with smaller sizes.
const char* const kConfig =
    R"({"model_type": "transfo-xl", "architectures": ["TransfoXLLMHeadModel"],
  "adaptive": true, "attn_type": 0, "clamp_len": 10, "cutoffs": [20, 40, 200], "d_embed": 128,
  "d_head": 32, "d_inner": 64, "d_model": 128, "div_val": 4, "dropatt": 0.0, "dropout": 0.1,
  "eos_token_id": 0, "ext_len": 0, "init": "normal", "init_range": 0.01, "init_std": 0.02,
  "layer_norm_epsilon": 1e-05, "mem_len": 16, "n_head": 4, "n_layer": 3, "pre_lnorm": false,
  "proj_init_std": 0.01, "same_length": true, "sample_softmax": -1, "tgt_len": 8,
  "tie_projs": [false, true, true, true], "tie_weight": true, "untie_r": true,
  "vocab_size": 267})";

Network read(const Json& json) { return network_from_public_config(JsonObject(json, "c.json")); }

}  // namespace

TEST_CASE("network_from_public_config: the public library's configuration becomes a network") {
  const test::ScratchFolder scratch;
  test::spill(scratch / "config.json", kConfig);
  const Network network = read_model_file(scratch.path()).network;
  CHECK(network.architecture == Architecture::kTransformerXl);
  CHECK(network.vocab_size == 267);
  CHECK(network.d_model == 128);
  CHECK(network.d_embed == 128);
  CHECK(network.n_head == 4);
  CHECK(network.d_head == 32);
  CHECK(network.d_inner == 64);
  CHECK(network.scales == std::vector<std::int64_t>{3});
  CHECK(network.cutoffs == std::vector<std::int64_t>{20, 40, 200});
  CHECK(network.div_val == 4);
  CHECK(network.tie_projs == std::vector<bool>{false, true, true, true});
  CHECK(network.lengths == Lengths{8, 16, 0});
  CHECK(network.clamp_len == 10);
  CHECK(network.dropout == 0.1);
  CHECK(network.untie_r);
  CHECK(network.same_length);
  CHECK_FALSE(network.pre_lnorm);
}

TEST_CASE("read_preset: the public library's configuration is a preset without settings") {
  const test::ScratchFolder scratch;
  test::spill(scratch / "config.json", kConfig);
  for (const std::filesystem::path& path : {scratch.path(), scratch / "config.json"}) {
    const Preset preset = read_preset(path, {"memory=24"}, {});
    CHECK(preset.training.empty());
    CHECK(preset.network.vocab_size == 0);
    CHECK(preset.network.cutoffs == std::vector<std::int64_t>{20, 40, 200});
    CHECK(preset.network.resolved_tie_projs() == std::vector<bool>{false, true, true, true});
    CHECK(preset.network.lengths == Lengths{8, 24, 0});
  }
}

TEST_CASE("network_from_public_config: newer configurations leave keys out") {
  Json json = parse_json(kConfig, "c.json");
  for (const char* key : {"tgt_len", "tie_projs", "pre_lnorm", "tie_weight", "ext_len"}) {
    json.erase(key);
  }
  json["proj_share_all_but_first"] = true;
  const Network network = read(json);
  CHECK(network.lengths.segment == 128);
  CHECK(network.tie_projs == std::vector<bool>{false, true, true, true});
  json["proj_share_all_but_first"] = false;
  CHECK(read(json).tie_projs == std::vector<bool>{false, false, false, false});
  json["clamp_len"] = -1;
  CHECK(read(json).clamp_len == -1);
}

TEST_CASE("network_from_public_config: features that this network lacks are refused by their key") {
  const auto refusal = [](const char* key, const Json& value) {
    Json json = parse_json(kConfig, "c.json");
    json[key] = value;
    return test::complaint([&] { read(json); });
  };
  CHECK(refusal("attn_type", 2).find("c.json: attn_type") == 0);
  CHECK(refusal("layer_norm_epsilon", 1e-6).find("c.json: layer_norm_epsilon") == 0);
  CHECK(refusal("tie_weight", false).find("c.json: tie_weight") == 0);
  CHECK(refusal("cutoffs", {20, 40, 267}).find("267") != std::string::npos);
  CHECK(refusal("dropout", 0.2).empty());
}

TEST_CASE("is_public_config: another model's configuration is refused") {
  const test::ScratchFolder scratch;
  test::spill(scratch / "config.json", R"({"model_type": "gpt2"})");
  CHECK_THROWS_WITH_AS(read_model_file(scratch.path()), doctest::Contains("transfo-xl"),
                       FormatError);
}

}  // namespace ql::net
