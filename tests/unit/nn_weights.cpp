// Weights between files and models.
#include "nn/weights.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "net/model_file.h"
#include "nn_support.h"
#include "scratch.h"
#include "torch_doctest.h"

namespace ql {
namespace {

net::Network network() {
  return test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
}

nn::TensorFile weights_file() {
  nn::TensorFile file;
  file.where = "w.safetensors";
  const nn::Model model = test::random_model(network(), 1);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    file.tensors.push_back({parameter.name, parameter.tensor.detach().clone()});
  }
  return file;
}

void check_refused(const std::function<void(nn::TensorFile&)>& damage, const std::string& reason) {
  nn::TensorFile file = weights_file();
  damage(file);
  nn::Model model(network(), at::kFloat);
  CHECK_THROWS_WITH_AS(nn::load_weights(model, file, "golden."), doctest::Contains(reason.c_str()),
                       FormatError);
  // Nothing was copied.
  for (const nn::NamedTensor& parameter : model.parameters()) {
    CHECK(parameter.tensor.abs().max().item<float>() == 0);
  }
}

}  // namespace

TEST_CASE("weights are copied by name into the model's dtype") {
  const nn::TensorFile file = weights_file();
  nn::Model model(network(), at::kFloat);
  nn::load_weights(model, file);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    CHECK((parameter.tensor.scalar_type() == at::kFloat));
    CHECK(parameter.tensor.requires_grad());
    CHECK(at::equal(parameter.tensor, file.at(parameter.name).to(at::kFloat)));
  }
}

TEST_CASE("weights that do not fit are refused by name") {
  check_refused([](nn::TensorFile& file) { file.tensors.pop_back(); },
                "'layers.2.pos_ff.layer_norm.bias': missing");
  check_refused(
      [](nn::TensorFile& file) {
        file.tensors.push_back({"extra", at::ones({1})});
      },
      "'extra'");
  check_refused(
      [](nn::TensorFile& file) {
        file.tensors[0].tensor = at::ones({11, 9});
      },
      "expected shape [11, 8], found [11, 9]");
  check_refused([](nn::TensorFile& file) { file.tensors[0].tensor = file.tensors[0].tensor.t(); },
                "found [8, 11]");
  check_refused(
      [](nn::TensorFile& file) {
        file.tensors[1].tensor[3] = std::numeric_limits<double>::quiet_NaN();
      },
      "'crit.out_layers.0.bias': it holds NaN");
  check_refused(
      [](nn::TensorFile& file) {
        file.tensors[1].tensor[3] = -std::numeric_limits<double>::infinity();
      },
      "infinite");
  // Finite in float64, infinite in the model's float32.
  check_refused([](nn::TensorFile& file) { file.tensors[1].tensor[3] = 1e300; }, "infinite");
  check_refused(
      [](nn::TensorFile& file) {
        file.tensors[0].tensor = at::ones({11, 8}, at::kLong);
      },
      "floating-point");
  nn::TensorFile file = weights_file();
  file.tensors.push_back({"golden.nll", at::ones({1})});
  nn::Model model(network(), at::kFloat);
  CHECK_NOTHROW(nn::load_weights(model, file, "golden."));
  CHECK_THROWS_AS(nn::load_weights(model, file), FormatError);
}

TEST_CASE("what the public code's state holds twice is accepted") {
  nn::TensorFile file = weights_file();
  file.tensors.push_back({"crit.out_layers.0.weight", file.tensors[0].tensor.clone()});
  file.tensors.push_back({"pos_emb.inv_freq", at::ones({4})});
  nn::Model model(network(), at::kFloat);
  CHECK_NOTHROW(nn::load_weights(model, file));
  check_refused(
      [](nn::TensorFile& other) {
        other.tensors.push_back({"crit.out_layers.0.weight", other.tensors[0].tensor + 1});
      },
      "'crit.out_layers.0.weight': the network ties it to 'word_emb.emb_layers.0.weight'");
}

TEST_CASE("a checkpoint folder gives its model") {
  const test::ScratchFolder folder;
  const nn::Model model = test::random_model(network(), 4, at::kFloat);
  net::ModelFile description;
  description.network = network();
  description.training = Json::object();
  description.provenance = Json::object();
  write_file_atomically(folder / "model.json", dump_json(net::model_file_to_json(description)));
  nn::write_safetensors(folder / "model.safetensors", model.parameters(), {});
  const nn::Model loaded = nn::load_model(folder.path());
  REQUIRE(loaded.parameters().size() == model.parameters().size());
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    CHECK(loaded.parameters()[i].name == model.parameters()[i].name);
    CHECK(at::equal(loaded.parameters()[i].tensor, model.parameters()[i].tensor));
  }
  CHECK_THROWS_AS(nn::load_model(folder / "nowhere"), Error);
}

}  // namespace ql
