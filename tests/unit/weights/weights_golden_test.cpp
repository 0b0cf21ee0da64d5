// Compares the golden networks: the model and the network on one page give the exact per-token
// losses of independent implementations.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "machine/device.h"
#include "net/geometry.h"
#include "nn/model.h"
#include "unit/items_reference.h"
#include "unit/network_on_one_page.h"
#include "unit/nn_support.h"
#include "unit/plain_bfloat16.h"
#include "unit/torch_doctest.h"
#include "weights/safetensors.h"
#include "weights/weights.h"

namespace ql::weights {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(QL_TEST_DATA) / "golden";

const char* const kNames[] = {
    "ql_two_scales_max", "ql_two_scales_mean",      "ql_three_scales",
    "ql_rate_four",      "ql_short_memory",         "ql_zero_memory",
    "multi_scale",       "multi_scale_three",       "xl_prelnorm",
    "xl_postlnorm",      "compressive_conv",        "compressive_max",
    "public_xl_clamp",   "public_xl_adaptive_div1", "public_xl_adaptive_div4"};

Json read_golden_json(const std::string& name) { return read_json(kGolden / (name + ".json")); }

net::Network golden_network(const Json& json, const std::string& name) {
  const JsonObject object(json, name);
  const auto integer = [&](const char* key, std::int64_t fallback) {
    return object.has(key) ? object.integer(key) : fallback;
  };
  net::Network network;
  network.architecture = value_named<net::Architecture>(object.text("architecture"), name);
  network.vocab_size = object.integer("vocab_size");
  network.d_model = object.integer("d_model");
  network.n_head = object.integer("n_head");
  network.d_head = object.integer("d_head");
  network.d_inner = object.integer("d_inner");
  network.rate = integer("c", 2);
  network.clamp_len = integer("clamp_len", -1);
  network.div_val = integer("div_val", 1);
  network.d_embed = integer("d_embed", 0);
  network.same_length = object.has("same_length") && object.boolean("same_length");
  if (object.has("cutoffs")) network.cutoffs = object.integers("cutoffs");
  if (network.architecture == net::Architecture::kCompressive) {
    network.scales = {object.integer("layers")};
    const std::string compress = object.text("compress");
    network.pool = value_named<net::Pool>(compress == "conv" ? "convolution" : compress, name);
    network.lengths.compressed_memory = object.integer("n_cm");
  } else {
    network.scales = object.integers("scales");
    network.output_layers = object.integer("output_layers");
    network.pool =
        object.has("pool") ? value_named<net::Pool>(object.text("pool"), name) : net::Pool::kMax;
  }
  network.pre_lnorm = object.boolean("pre_lnorm");
  network.lengths.segment = object.integer("n_s");
  network.lengths.memory = object.integer("n_m");
  return network;
}

// Loads the weights of a golden network, whose file also has tokens and losses.
void load_golden(nn::Model& model, TensorFile file) {
  const auto is_golden = [](const nn::NamedTensor& tensor) {
    return tensor.name.rfind("golden.", 0) == 0;
  };
  file.tensors.erase(std::remove_if(file.tensors.begin(), file.tensors.end(), is_golden),
                     file.tensors.end());
  load_weights(model, file);
}

double golden_difference(const std::string& name, const net::Network& network,
                         at::ScalarType type) {
  const TensorFile file = read_safetensors(kGolden / (name + ".safetensors"));
  nn::Model model(network, type);
  load_golden(model, file);
  const at::Tensor losses = test::read_streams(model, network.lengths, file.at("golden.tokens"),
                                               file.at("golden.targets"));
  return test::largest_difference(losses, file.at("golden.nll"));
}

double golden_difference_of_page(const std::string& name, const net::Network& network) {
  const TensorFile file = read_safetensors(kGolden / (name + ".safetensors"));
  const at::Tensor tokens = file.at("golden.tokens"), targets = file.at("golden.targets");
  double largest = 0;
  for (std::int64_t stream = 0; stream < tokens.size(0); ++stream) {
    test::NetworkOnOnePage page{network, {}};
    for (const auto& entry : file.tensors) page.weights[entry.name] = entry.tensor.to(at::kDouble);
    const auto* first = tokens[stream].data_ptr<std::int64_t>();
    const at::Tensor outputs = page.read(network.lengths, {first, first + tokens.size(1)}).outputs;
    for (std::int64_t i = 0; i < tokens.size(1); ++i) {
      const at::Tensor loss = page.loss(outputs[i], targets[stream][i].item<std::int64_t>());
      largest =
          test::larger(largest, test::largest_difference(loss, file.at("golden.nll")[stream][i]));
    }
  }
  return largest;
}

bool is_public(const std::string& name) { return name.rfind("public_", 0) == 0; }

// Returns values of a key that differ from `value`; more than one if the first may not fit the rest
// of the network.
std::vector<Json> other_values(const std::string& key, const Json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (key == "architecture") {  // a Transformer-QL of one scale is a Transformer-XL
    return value == "transformer-xl"
               ? std::vector<Json>{"vanilla", "multi-scale"}
               : std::vector<Json>{"transformer-xl", "transformer-ql", "multi-scale", "vanilla"};
  }
  if (key == "pool" || key == "compress") {
    return value == "max" ? std::vector<Json>{"mean", "conv"} : std::vector<Json>{"max"};
  }
  if (key == "scales") {
    Json longer = value, moved = value;
    longer.back() = longer.back().get<int>() + 1;
    std::rotate(moved.begin(), moved.begin() + 1, moved.end());
    return {longer, moved};
  }
  if (key == "cutoffs") {
    return value.empty() ? std::vector<Json>{{50}} : std::vector<Json>{{20, 61}, {21, 60}, {20}};
  }
  if (key == "clamp_len") return {value == -1 ? 3 : -1, 4};
  if (key == "div_val") return {value.get<int>() * 2};
  if (key == "n_s") {  // a divisor of the 96 golden tokens
    return {value == 16 ? 8 : 16, value == 12 ? 24 : 12, 32};
  }
  return {value.get<int>() * 2, value.get<int>() + 1, value.get<int>() + 2, value.get<int>() / 2};
}

// Returns true for keys without an effect on this network.
bool is_silent(const std::string& key, const net::Network& network) {
  const bool pools = network.scales.size() > 1;
  const bool compresses = pools || network.architecture == net::Architecture::kCompressive;
  return key == "no_memory" || (key == "pool" && !pools) || (key == "c" && !compresses);
}

// Returns the root of the mean square of the losses' differences if products are rounded to
// bfloat16.
double rounded_difference(const std::string& name, const net::Network& network) {
  const TensorFile file = read_safetensors(kGolden / (name + ".safetensors"));
  nn::Model model(network, at::kFloat);
  load_golden(model, file);
  const nn::ModelPrecision rounding(model, machine::Precision::kBfloat16);
  const at::Tensor losses = test::read_streams(model, network.lengths, file.at("golden.tokens"),
                                               file.at("golden.targets"));
  return (losses.to(at::kDouble) - file.at("golden.nll")).square().mean().sqrt().item<double>();
}

}  // namespace

// LibTorch rounds the operands of the same products, and also their results. A network has one
// realisation of these errors, so only the mean over all networks has to be below that of LibTorch,
// whose versions differ. One network had 1.05 of LibTorch 2.6.
TEST_CASE("golden networks: in bfloat16 they err less than by LibTorch's operations" *
          doctest::test_suite("numeric")) {
  double logarithms = 0;
  for (const std::string name : kNames) {
    CAPTURE(name);
    const net::Network network = golden_network(read_golden_json(name), name);
    const double ours = rounded_difference(name, network);
    const test::PlainBfloat16 plain;
    const machine::OperationsOnly operations;
    const double of_operations = rounded_difference(name, network);
    CHECK(ours > 1e-6);
    CHECK(ours < 1.15 * of_operations);
    logarithms += std::log(ours / of_operations);
  }
  CHECK(logarithms < 0);
}

TEST_CASE("golden networks: they give their losses" * doctest::test_suite("numeric")) {
  for (const std::string name : kNames) {
    CAPTURE(name);
    const net::Network network = golden_network(read_golden_json(name), name);
    // The public code's mask rounds its scores to float32.
    const double tolerance = is_public(name) ? 1e-8 : 1e-9;
    CHECK(golden_difference_of_page(name, network) < tolerance);
    CHECK(golden_difference(name, network, at::kDouble) < tolerance);
    CHECK(golden_difference(name, network, at::kFloat) < 1e-4);
  }
}

TEST_CASE("golden networks: they give other losses, or none, when a key is changed") {
  for (const std::string name : kNames) {
    CAPTURE(name);
    const Json json = read_golden_json(name);
    for (const auto& [key, value] : json.items()) {
      CAPTURE(key);
      if (is_silent(key, golden_network(json, name))) continue;
      int tried = 0, computed = 0;
      for (const Json& other : other_values(key, value)) {
        Json changed = json;
        changed[key] = other;
        if (other == value) continue;
        ++tried;
        CAPTURE(other.dump());
        double difference = 1;
        try {
          difference = golden_difference(name, golden_network(changed, name), at::kDouble);
          ++computed;
        } catch (const Error&) {
          // The change is refused: the weights or the lengths do not fit.
        }
        CHECK(difference > 1e-4);
      }
      CHECK(tried > 0);
      // The weights fit whatever value these keys have, so the losses must differ.
      for (const char* free : {"n_s", "n_cm", "clamp_len", "pre_lnorm", "pool"}) {
        CHECK((key != free || computed > 0));
      }
    }
  }
}

TEST_CASE("golden networks: items are scored as the network on one page does") {
  for (const char* const name : kNames) {
    CAPTURE(name);
    const net::Network network = golden_network(read_golden_json(name), name);
    nn::Model model(network, at::kFloat);
    load_golden(model, read_safetensors(kGolden / (std::string(name) + ".safetensors")));
    test::check_items(model, 2, 2 * network.lengths.segment + 1, 2e-6);
  }
}

}  // namespace ql::weights
