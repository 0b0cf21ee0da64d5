// Tests a network's keys and of the rules that they obey.

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "net/geometry.h"
#include "net/model_file.h"
#include "net/network.h"
#include "unit/complaint.h"
#include "unit/net_networks.h"

using namespace ql;
using namespace ql::net;
using namespace ql::net::testing;

namespace {

constexpr const char* kComplete = R"({
  "architecture": "transformer-ql", "vocab_size": 11492, "d_model": 256, "n_head": 4,
  "d_head": 64, "d_inner": 1024, "scales": [3, 3], "output_layers": 2, "rate": 2, "pool": "max",
  "pre_lnorm": true, "untie_r": false, "clamp_len": 40, "segment": 8, "memory": 8,
  "compressed_memory": 0, "compression_loss": "attention-reconstruction",
  "reset_memory_at_documents": true, "dropout": 0.1, "dropatt": 0.2, "droppath": 0.3, "init_std": 0.02,
  "proj_init_std": 0.01, "cutoffs": [2000, 5000], "div_val": 2, "d_embed": 128,
  "proj_same_dim": false, "tie_projs": [true, false, true], "encoding": "shaw",
  "attention": "softmax", "same_length": false, "attention_window": 6,
  "attention_dilation": [1, 1, 2, 3]})";

// Returns the network of kComplete after an edit.
Network edited(const std::function<void(Json&)>& edit) {
  Json json = parse_json(kComplete, "test.json");
  edit(json);
  return network_from_json(JsonObject(json, "test.json"));
}

std::string message_of(const std::function<void(Json&)>& edit) {
  return test::complaint([&] { edited(edit); });
}

Network with_lengths(Network network) {
  network.lengths = {4, 6, 6};
  return network;
}

std::string message_of(const Network& network) {
  return test::complaint<ConfigError>([&] { network.check("net"); });
}

}  // namespace

TEST_CASE("network_from_json: a network is read from JSON and written back unchanged") {
  const Network network = edited([](Json&) {});
  CHECK(network.architecture == Architecture::kTransformerQl);
  CHECK(network.vocab_size == 11492);
  CHECK(network.scales == std::vector<std::int64_t>{3, 3});
  CHECK(network.output_layers == 2);
  CHECK(network.layers() == 8);
  CHECK(network.lengths == Lengths{8, 8, 0});
  CHECK(network.reset_memory_at_documents);
  CHECK(network.dropatt == 0.2);
  CHECK(network.droppath == 0.3);
  const Json complete = parse_json(kComplete, "test.json");
  const Json written = network_to_json(network);
  const std::vector<std::string> keys = key_names<Network>();
  REQUIRE(keys.size() >= complete.size());
  std::size_t i = 0;
  for (const auto& [key, value] : complete.items()) {  // newer keys follow these
    CHECK(keys[i++] == key);
    CHECK(written[key] == value);
  }
}

TEST_CASE("network_from_json: keys may be left out, except those without a default") {
  const Network network = edited([](Json& json) {
    for (const char* key :
         {"vocab_size", "output_layers", "rate", "pool", "compression_loss", "pre_lnorm", "untie_r",
          "memory", "compressed_memory", "reset_memory_at_documents", "dropout", "dropatt",
          "droppath", "init_std", "proj_init_std"}) {
      json.erase(key);
    }
  });
  CHECK(network.vocab_size == 0);
  CHECK(network.rate == 2);
  CHECK(network.pre_lnorm);
  CHECK(network.compression_loss == CompressionLoss::kAttentionReconstruction);
  CHECK(!network.reset_memory_at_documents);
  CHECK(network.init_std == 0.02);
  for (const char* key :
       {"architecture", "d_model", "n_head", "d_head", "d_inner", "scales", "segment"}) {
    CHECK(message_of([&](Json& json) { json.erase(key); }) ==
          "test.json: the key '" + std::string(key) + "' is missing");
  }
}

TEST_CASE("all_lengths: every combination, an empty list for the network's own length") {
  CHECK(all_lengths({}, {4, 6, 7}) == std::vector<Lengths>{{4, 6, 7}});
  CHECK(all_lengths({{8, 2}, {}, {0, 1}}, {4, 6, 7}) ==
        std::vector<Lengths>{{8, 6, 0}, {8, 6, 1}, {2, 6, 0}, {2, 6, 1}});
  CHECK(all_lengths({{}, {0, 12}, {}}, {4, 6, 7}) == std::vector<Lengths>{{4, 0, 7}, {4, 12, 7}});
}

TEST_CASE("network_from_json: wrong keys, types and lengths name the file and the key") {
  CHECK(message_of([](Json& json) { json["dropot"] = 0.1; }) ==
        "test.json: unknown key 'dropot'; did you mean 'dropout'?");
  CHECK(message_of([](Json& json) { json["d_model"] = 1.5; }) ==
        "test.json: d_model: expected a whole number, found the number 1.5");
  CHECK(message_of([](Json& json) { json["architecture"] = "lstm"; }) ==
        "test.json: architecture: 'lstm' is unknown; known names are transformer-ql, "
        "transformer-xl, compressive, multi-scale, vanilla");
  CHECK(message_of([](Json& json) { json["pool"] = "nonsense"; }) ==
        fmt::format("test.json: pool: 'nonsense' is unknown; known names are {}",
                    fmt::join(all_names<Pool>(), ", ")));
  CHECK(message_of([](Json& json) { json["compression_loss"] = "none"; }) ==
        "test.json: compression_loss: 'none' is unknown; known names are "
        "attention-reconstruction, auto-encoding");
  CHECK(message_of([](Json& json) {
          json["segment"] = 7;
        }).find("test.json: segment 7, memory 8: the segment must be a multiple of 2") == 0);
}

TEST_CASE("network_from_json: all conflicts are reported at once, and each counts once") {
  const auto conflicts = [](const std::function<void(Json&)>& edit) {
    Json json = parse_json(kComplete, "test.json");
    edit(json);
    Conflicts found;
    network_from_json(JsonObject(json, "net"), found);
    return std::pair(found.size(), test::complaint<ConfigError>([&] { found.raise("--set"); }));
  };
  CHECK(conflicts([](Json&) {}).first == 0);
  const auto [count, text] = conflicts([](Json& json) {
    json["d_model"] = 0;  // values computed from it are not checked
    json["scales"] = {0, -1, 3};
    json["dropatt"] = 2;
    json["clamp_len"] = 0;
  });
  CHECK(count == 4);
  CHECK(text ==
        "4 conflicts in the configuration\n"
        "  net: d_model is 0, must be 1 to 262144\n"
        "  net: an item of scales is 0, must be 1 to 4096\n"
        "  net: dropatt is 2, must be at least 0 and less than 1\n"
        "  net: clamp_len is 0, but with encoding shaw it must be at least 1; set clamp_len to 1 "
        "or more: larger distances get the vector of the distance clamp_len");
  // Lengths are checked only when the layers are right.
  CHECK(conflicts([](Json& json) {
          json["segment"] = 7;
          json["clamp_len"] = 0;
        }).first == 2);
}

TEST_CASE("to_text, find_named: names of architectures and pools") {
  for (const std::string& name : all_names<Architecture>()) {
    const auto architecture = value_named<Architecture>(name, "");
    CHECK(to_text(architecture) == name);
    CHECK(value_named<Architecture>(to_short_text(architecture), "") == architecture);
  }
  CHECK(to_text(Architecture::kMultiScale) == "multi-scale");
  CHECK(to_short_text(Architecture::kMultiScale) == "multiscale");
  for (const std::string& name : all_names<Pool>()) {
    CHECK(to_text(value_named<Pool>(name, "")) == name);
  }
  for (const std::string& name : all_names<CompressionLoss>()) {
    CHECK(to_text(value_named<CompressionLoss>(name, "")) == name);
  }
}

TEST_CASE("Network::check: refuses a network that cannot be built and says how to fix it") {
  const Network good = with_sizes(paper_ql());
  CHECK(message_of(good) == "");
  const auto refused = [&](const std::function<void(Network&)>& edit, const std::string& reason) {
    Network network = good;
    edit(network);
    CHECK(message_of(network) == "net: " + reason);
  };
  const std::string width = std::to_string(kMaxWidth);
  refused([](Network& n) { n.scales = {}; },
          "scales is empty; give the layers of every scale, as in [3, 3]");
  refused([](Network& n) { n.scales = {3, 0}; }, "an item of scales is 0, must be 1 to 4096");
  refused(
      [](Network& n) {
        n.scales = {4096, 4096};
      },
      "the number of layers in all is 8194, must be 1 to 4096");
  refused([](Network& n) { n.output_layers = -1; }, "output_layers is -1, must be 0 to 4096");
  refused([](Network& n) { n.rate = 1; }, "rate is 1, but compression needs a rate of 2 or more");
  refused([](Network& n) { n.rate = 0; }, "rate is 0, must be 1 to 4096");
  refused([](Network& n) { n.scale_widths = {256}; },
          "scale_widths has the length 1, expected 2: one value for each scale; give d_model "
          "first, then the width of every coarser scale, or leave scale_widths out");
  refused(
      [](Network& n) {
        n.scale_widths = {128, 256};
      },
      "scale_widths begins with 128, but must begin with d_model, which is 256; give d_model "
      "first, then the width of every coarser scale, or leave scale_widths out");
  refused(
      [](Network& n) {
        n.scale_widths = {256, 257};
      },
      "scale_widths: 257 is odd, but every width must be even; give an even width, which every "
      "encoding takes");
  refused(
      [](Network& n) {
        n.d_inner = 100, n.scale_widths = {256, 258};
      },
      "scale_widths: at width 258 the scale's d_inner is 100 * 258 / 256, which must be a whole "
      "number "
      "up to " +
          width + "; use another width");
  refused(
      [](Network& n) { n.query_only_pooling = true, n.attention_window = 2; },
      "query_only_pooling and attention_window are both set; query_only_pooling mixes states of "
      "two scales, which cannot be counted together: leave one of the two keys out");
  refused([](Network& n) { n.scales = {4}, n.learned_join = true; },
          "learned_join is set, but there is one scale only; nothing is joined: leave learned_join "
          "out");
  refused([](Network& n) { n.d_model = 0; }, "d_model is 0, must be 1 to " + width);
  refused([](Network& n) { n.n_head = -4; }, "n_head is -4, must be 1 to " + width);
  refused([](Network& n) { n.d_head = INT64_MAX; },
          "d_head is 9223372036854775807, must be 1 to " + width);
  refused([](Network& n) { n.n_head = 1000, n.d_head = 1000; },
          "n_head * d_head is 1000000, must be 1 to " + width);
  refused([](Network& n) { n.d_inner = 0; }, "d_inner is 0, must be 1 to " + width);
  refused([](Network& n) { n.vocab_size = -1; }, "vocab_size is -1, must be 0 to 2147483648");
  refused([](Network& n) { n.d_model = 255; },
          "d_model is 255, but must be even; give an even width, which every encoding takes");
  refused([](Network& n) { n.dropout = 1; }, "dropout is 1, must be at least 0 and less than 1");
  refused([](Network& n) { n.dropatt = -0.5; },
          "dropatt is -0.5, must be at least 0 and less than 1");
  refused([](Network& n) { n.droppath = std::numeric_limits<double>::quiet_NaN(); },
          "droppath is nan, must be at least 0 and less than 1");
  refused([](Network& n) { n.init_std = -1; },
          "init_std is -1, must be a finite number of at least 0");
  refused([](Network& n) { n.proj_init_std = std::numeric_limits<double>::infinity(); },
          "proj_init_std is inf, must be a finite number of at least 0");
  std::vector<std::string> others;
  for (const PoolRow& row : kPools) {
    if (row.has(PoolRow::kScales)) others.emplace_back(row.name);
  }
  for (const Pool pool : {Pool::kConvolution, Pool::kDilatedConvolution, Pool::kMostUsed}) {
    refused(
        [pool](Network& n) { n.pool = pool; },
        fmt::format("pool is {}, which only a compressive network supports, but architecture is "
                    "transformer-ql; use {}",
                    to_text(pool), fmt::join(others, " or ")));
  }
}

TEST_CASE("Network::check: encodings and the keys that a query sees") {
  const auto refused = [](const Network& good, const std::function<void(Network&)>& edit,
                          const std::string& reason) {
    Network network = good;
    edit(network);
    CHECK(message_of(network) == "net: " + reason);
  };
  const Network ql = with_sizes(paper_ql()), plain = with_sizes(vanilla(8));
  refused(
      ql, [](Network& n) { n.clamp_len = 0; },
      "clamp_len is 0, but must be -1 or at least 1; use -1 to clamp no distance");
  refused(
      ql, [](Network& n) { n.encoding = Encoding::kShaw; },
      "encoding is shaw, but clamp_len sets no limit; set clamp_len to 1 or more: larger distances "
      "get the vector of the distance clamp_len");
  refused(
      ql, [](Network& n) { n.encoding = Encoding::kAbsolute; },
      "encoding is absolute, but architecture is transformer-ql; this encoding gives memories and "
      "pooled states no position: use another encoding, or architecture vanilla");
  refused(
      plain, [](Network& n) { n.encoding = Encoding::kAbsolute, n.clamp_len = 3; },
      "clamp_len is set, but encoding is absolute; this encoding has no distances: leave "
      "clamp_len out");
  refused(
      ql, [](Network& n) { n.same_length = true, n.attention_window = 3; },
      "same_length and attention_window are both set; each says how many keys a query sees: "
      "leave one out");
  refused(
      plain, [](Network& n) { n.same_length = true; },
      "same_length is set, but a vanilla network keeps no memory; use attention_window "
      "instead");
  Network linear = plain;
  linear.same_length = true;
  linear.attention = Attention::kLinear;  // and so without attention_window
  CHECK(
      message_of(linear) ==
      "2 conflicts in the configuration\n"
      "  net: same_length is set, but a vanilla network keeps no memory; leave same_length out\n"
      "  net: attention is linear, but same_length is set; linear attention sums over all keys of "
      "the window: leave same_length out");
  refused(
      ql,
      [](Network& n) {
        n.attention_dilation = {1, 1, 2, 2};
      },
      "attention_dilation is set, but attention_window is not; set attention_window, too, or "
      "leave attention_dilation out");
  refused(
      ql,
      [](Network& n) {
        n.attention_window = 3, n.attention_dilation = {1, 2};
      },
      "attention_dilation has the length 2, expected 4: one value for each head");
  refused(
      ql, [](Network& n) { n.attention = Attention::kLinear, n.attention_window = 3; },
      "attention is linear, but attention_window is set; linear attention sums over all keys of "
      "the window: leave attention_window out");
  refused(
      with_sizes(compressive(8)),
      [](Network& n) { n.attention = Attention::kLinear, n.pool = Pool::kMostUsed; },
      "attention is linear, but pool is most-used; linear attention has no probabilities to "
      "choose states by: use another pool");
  refused(
      ql, [](Network& n) { n.attention = Attention::kLinear, n.dropatt = 0.1; },
      "attention is linear, but dropatt is 0.1; linear attention has no probabilities to "
      "drop: set dropatt to 0");
  refused(
      ql,
      [](Network& n) {
        n.attention = Attention::kLinear;
        n.encoding = Encoding::kShaw;
        n.clamp_len = 3;
      },
      "attention is linear, but encoding is shaw; linear attention cannot use this encoding's "
      "vectors: use encoding transformer-xl");
}

TEST_CASE("Network::check: same_length needs a memory") {
  Network network = xl(8);
  network.same_length = true;
  CHECK(test::complaint<ConfigError>([&] {
          make_geometry(network, {4, 0, 0});
        }) ==
        "segment 4, memory 0: with same_length a query sees as many keys as the memory has states, "
        "so the memory needs at least one state; nearest valid: memory 1");
  CHECK(make_geometry(network, {4, 12, 0}).stages.front().span == 12);

  // A network that keeps no memory is not advised to have one.
  Network without = vanilla(8);
  without.same_length = true;
  CHECK(nearest_valid_lengths(without, {4, 0, 0}) == std::vector<Lengths>{{4, 0, 0}});
  CHECK(nearest_valid_lengths(without, {4, 1, 0}) == std::vector<Lengths>{{4, 0, 0}});
}

TEST_CASE("Network::check: only a network with memory can reset it") {
  for (Network network : {paper_ql(), xl(2), compressive(2), multi_scale({1, 1}, 1), vanilla(2)}) {
    network = with_sizes(network);
    network.reset_memory_at_documents = true;
    const std::string name = to_text(network.architecture);
    const bool refused = name == "multi-scale" || name == "vanilla";
    CHECK(message_of(network) == (refused ? "net: reset_memory_at_documents is true, but a " +
                                                name + " network keeps no memory; set it to false"
                                          : ""));
  }
}

TEST_CASE("Network::check: networks of one scale") {
  CHECK(message_of(with_sizes(xl(8))) == "");
  CHECK(message_of(with_sizes(compressive(8))) == "");
  Network network = with_sizes(paper_ql());
  network.architecture = Architecture::kTransformerXl;
  CHECK(
      message_of(network) ==
      "2 conflicts in the configuration\n"
      "  net: a transformer-xl network has one scale, but scales has 2 values; give all its layers "
      "as one number: [8]\n"
      "  net: a transformer-xl network has no output layers, but output_layers is 2; set it to "
      "0, and scales to [8] to keep these layers");
  network.scales = {6};
  CHECK(message_of(network) ==
        "net: a transformer-xl network has no output layers, but output_layers is 2; set it to "
        "0, and scales to [8] to keep these layers");
  network = with_sizes(xl(8));
  network.droppath = 0.3;
  CHECK(message_of(network) ==
        "net: droppath is 0.3, but there is one scale only; droppath leaves scales out: set it "
        "to 0");
  network = with_sizes(compressive(8, 1));
  CHECK(message_of(network) == "net: rate is 1, but compression needs a rate of 2 or more");
  CHECK(message_of(with_sizes(quadratic({4}, 2, 1))) == "");  // nothing is compressed
}

TEST_CASE("Network::check: auto-encoding needs a convolution") {
  Network network = with_sizes(compressive(8));
  network.compression_loss = CompressionLoss::kAutoEncoding;
  for (const Pool pool : {Pool::kMax, Pool::kMean, Pool::kMostUsed}) {
    network.pool = pool;
    CHECK(message_of(network) ==
          "net: compression_loss is auto-encoding, which decodes the states that a convolution "
          "has compressed, but architecture is compressive and pool is " +
              to_text(pool) +
              "; leave compression_loss out, or use architecture compressive with pool convolution "
              "or dilated-convolution");
  }
  for (const Pool pool : {Pool::kConvolution, Pool::kDilatedConvolution}) {
    network.pool = pool;
    CHECK(message_of(network) == "");
    CHECK(
        network_from_json(JsonObject(network_to_json(with_lengths(network)), "")).learns_decoder());
  }
}
