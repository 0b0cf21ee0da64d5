// The golden networks: exact per-token losses of an independent implementation.
#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"
#include "net/geometry.h"
#include "nn/model.h"
#include "nn/safetensors.h"
#include "nn/weights.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(QL_TEST_DATA) / "golden";

net::Network read_golden_network(const std::string& name) {
  const Json json = read_json(kGolden / (name + ".json"));
  const JsonObject object(json, name);
  net::Network network;
  network.architecture = net::architecture_from_text(object.text("architecture"), name);
  network.vocab_size = object.integer("vocab_size");
  network.d_model = object.integer("d_model");
  network.n_head = object.integer("n_head");
  network.d_head = object.integer("d_head");
  network.d_inner = object.integer("d_inner");
  network.rate = object.has("c") ? object.integer("c") : 2;
  network.clamp_len = object.has("clamp_len") ? object.integer("clamp_len") : -1;
  network.cutoffs =
      object.has("cutoffs") ? object.integers("cutoffs") : std::vector<std::int64_t>();
  network.div_val = object.has("div_val") ? object.integer("div_val") : 1;
  if (network.architecture == net::Architecture::kCompressive) {
    network.scales = {object.integer("layers")};
    network.pool = object.text("compress") == "conv" ? net::Pool::kConvolution : net::Pool::kMax;
    network.lengths.compressed_memory = object.integer("n_cm");
  } else {
    network.scales = object.integers("scales");
    network.output_layers = object.integer("output_layers");
    network.pool =
        object.has("pool") ? net::pool_from_text(object.text("pool"), name) : net::Pool::kMax;
  }
  network.pre_lnorm = object.boolean("pre_lnorm");
  network.lengths.segment = object.integer("n_s");
  network.lengths.memory = object.integer("n_m");
  return network;
}

double golden_difference(const std::string& name, const net::Network& network,
                         at::ScalarType type) {
  const nn::TensorFile file = nn::read_safetensors(kGolden / (name + ".safetensors"));
  nn::Model model(network, type);
  nn::load_weights(model, file, "golden.");
  const at::Tensor losses = test::read_streams(model, network.lengths, file.at("golden.tokens"),
                                               file.at("golden.targets"));
  return test::largest_difference(losses, file.at("golden.nll"));
}

}  // namespace

TEST_CASE("golden networks give their losses") {
  for (const char* name :
       {"ql_two_scales_max", "ql_two_scales_mean", "ql_three_scales", "ql_rate_four",
        "ql_short_memory", "ql_zero_memory", "multi_scale", "multi_scale_three", "xl_prelnorm",
        "xl_postlnorm", "compressive_conv", "compressive_max", "public_xl_clamp",
        "public_xl_adaptive_div1", "public_xl_adaptive_div4"}) {
    CAPTURE(name);
    const net::Network network = read_golden_network(name);
    // The public code's mask rounds its scores to float32.
    const bool is_public = std::string(name).rfind("public_", 0) == 0;
    CHECK(golden_difference(name, network, at::kDouble) < (is_public ? 1e-8 : 1e-9));
    CHECK(golden_difference(name, network, at::kFloat) < 1e-4);
  }
}

TEST_CASE("golden losses change with every key of the network") {
  const std::string name = "ql_two_scales_max";
  const auto changed = [&](const std::function<void(net::Network&)>& change) {
    net::Network network = read_golden_network(name);
    change(network);
    return golden_difference(name, network, at::kDouble);
  };
  CHECK(changed([](net::Network&) {}) < 1e-9);
  CHECK(changed([](net::Network& network) { network.rate = 4; }) > 1e-3);
  CHECK(changed([](net::Network& network) { network.pool = net::Pool::kMean; }) > 1e-3);
  CHECK(changed([](net::Network& network) { network.pre_lnorm = false; }) > 1e-3);
  CHECK(changed([](net::Network& network) { network.lengths.memory = 8; }) > 1e-3);
  CHECK(changed([](net::Network& network) { network.lengths.segment = 8; }) > 1e-3);
  CHECK(changed([](net::Network& network) { network.scales = {3, 1}; }) > 1e-3);
  CHECK(changed([](net::Network& network) {
          network.scales = {2, 3};
          network.output_layers = 1;
        }) > 1e-3);
  CHECK(changed([](net::Network& network) {
          network.architecture = net::Architecture::kMultiScale;
          network.lengths.memory = 0;
        }) > 1e-3);
}

}  // namespace ql
