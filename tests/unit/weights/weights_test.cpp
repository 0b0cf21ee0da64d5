// Tests how weights are loaded from files into models.
#include "weights/weights.h"

#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "net/model_file.h"
#include "unit/nn_support.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"

namespace ql::weights {
namespace {

net::Network network() {
  return test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
}

TensorFile weights_file() {
  TensorFile file;
  file.where = "w.safetensors";
  const nn::Model model = test::random_model(network(), 1);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    file.tensors.push_back({parameter.name, parameter.tensor.detach().clone()});
  }
  return file;
}

void check_refused(const std::function<void(TensorFile&)>& damage, const std::string& reason) {
  TensorFile file = weights_file();
  damage(file);
  nn::Model model(network(), at::kFloat);
  CHECK_THROWS_WITH_AS(load_weights(model, file), doctest::Contains(reason.c_str()), FormatError);
  // Nothing was copied.
  for (const nn::NamedTensor& parameter : model.parameters()) {
    CHECK(parameter.tensor.abs().max().item<float>() == 0);
  }
}

}  // namespace

TEST_CASE("load_weights: copies by name into the model's dtype") {
  const TensorFile file = weights_file();
  nn::Model model(network(), at::kFloat);
  load_weights(model, file);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    CHECK((parameter.tensor.scalar_type() == at::kFloat));
    CHECK(parameter.tensor.requires_grad());
    CHECK(at::equal(parameter.tensor, file.at(parameter.name).to(at::kFloat)));
  }
}

TEST_CASE("load_weights: weights that do not fit are refused by name") {
  check_refused([](TensorFile& file) { file.tensors.pop_back(); },
                "'layers.2.pos_ff.layer_norm.bias': missing");
  check_refused(
      [](TensorFile& file) {
        file.tensors.push_back({"extra", at::ones({1})});
      },
      "'extra'");
  check_refused(
      [](TensorFile& file) {
        file.tensors[0].tensor = at::ones({11, 9});
      },
      "expected shape [11, 8], found [11, 9]");
  check_refused([](TensorFile& file) { file.tensors[0].tensor = file.tensors[0].tensor.t(); },
                "found [8, 11]");
  check_refused(
      [](TensorFile& file) {
        file.tensors[1].tensor[3] = std::numeric_limits<double>::quiet_NaN();
      },
      "'crit.out_layers.0.bias': it holds NaN");
  check_refused(
      [](TensorFile& file) {
        file.tensors[1].tensor[3] = -std::numeric_limits<double>::infinity();
      },
      "infinite");
  // The value is finite in float64, and infinite in the model's float32.
  check_refused([](TensorFile& file) { file.tensors[1].tensor[3] = 1e300; }, "infinite");
  check_refused(
      [](TensorFile& file) {
        file.tensors[0].tensor = at::ones({11, 8}, at::kLong);
      },
      "floating-point");
  for (const std::string prefix : {"module.", "model.module."}) {
    check_refused(
        [&prefix](TensorFile& file) {
          for (nn::NamedTensor& tensor : file.tensors) tensor.name.insert(0, prefix);
        },
        "all names of tensors begin with '" + prefix + "'; write the file again without");
  }
  check_refused([](TensorFile& file) { file.tensors.clear(); },
                "'word_emb.emb_layers.0.weight': missing");
  check_refused([](TensorFile& file) { file.tensors.resize(1); },
                "'crit.out_layers.0.bias': missing");
}

TEST_CASE("load_weights: tensors that the public code's state repeats are accepted") {
  TensorFile file = weights_file();
  file.tensors.push_back({"crit.out_layers.0.weight", file.tensors[0].tensor.clone()});
  file.tensors.push_back({"pos_emb.inv_freq", at::ones({4})});
  nn::Model model(network(), at::kFloat);
  CHECK_NOTHROW(load_weights(model, file));
  check_refused(
      [](TensorFile& other) {
        other.tensors.push_back({"crit.out_layers.0.weight", other.tensors[0].tensor + 1});
      },
      "'crit.out_layers.0.weight': the network ties this tensor to 'word_emb.emb_layers.0.weight'");
}

TEST_CASE("load_model: a checkpoint folder gives its model") {
  const test::ScratchFolder folder;
  const nn::Model model = test::random_model(network(), 4, at::kFloat);
  net::ModelFile description;
  description.network = network();
  description.training = Json::object();
  description.provenance = Json::object();
  write_file_atomically(folder / "model.json", dump_json(net::model_file_to_json(description)));
  write_safetensors(folder / "model.safetensors", model.parameters(), {});
  const nn::Model loaded = load_model(folder.path());
  REQUIRE(loaded.parameters().size() == model.parameters().size());
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    CHECK(loaded.parameters()[i].name == model.parameters()[i].name);
    CHECK(at::equal(loaded.parameters()[i].tensor, model.parameters()[i].tensor));
  }
  CHECK_THROWS_AS(load_model(folder / "nowhere"), Error);
}

TEST_CASE("load_model: a network larger than any memory is refused before it is built") {
  const test::ScratchFolder folder;
  net::ModelFile description;
  description.network = network();
  description.network.d_inner = net::kMaxWidth;
  description.network.d_model = net::kMaxWidth;
  description.network.scales = {2000, 2000};
  description.training = Json::object();
  description.provenance = Json::object();
  write_file_atomically(folder / "model.json", dump_json(net::model_file_to_json(description)));
  write_safetensors(folder / "model.safetensors", weights_file().tensors, {});
  CHECK_THROWS_WITH_AS(load_model(folder.path()),
                       doctest::Contains("weights, but the number of values in the file is"),
                       FormatError);
}

namespace {

// Holds the weights of an adaptive Transformer-XL, under the names that the public code gives them.
struct PublicState {
  PublicState() {
    net::Network adaptive =
        test::small_network(net::Architecture::kTransformerXl, {1}, 0, {4, 4, 0});
    adaptive.cutoffs = {3, 6, 9};
    adaptive.d_embed = 4;
    adaptive.proj_init_std = 0.5;
    model = std::make_unique<nn::Model>(test::random_model(adaptive, 4));
    for (const nn::NamedTensor& parameter : model->parameters()) {
      tensors.push_back({parameter.name, parameter.tensor.detach().clone()});
    }
  }
  at::Tensor& at(const std::string& name) {
    for (nn::NamedTensor& tensor : tensors) {
      if (tensor.name == name) return tensor.tensor;
    }
    throw std::logic_error(name);
  }
  // Loads them, and returns by how much the losses differ from the model's.
  double difference() const {
    const test::ScratchFolder scratch;
    write_safetensors(scratch / "model.safetensors", tensors, {});
    nn::Model read(model->network(), at::kDouble);
    load_weights(read, read_weights(scratch.path()));
    const at::Tensor tokens = test::random_tokens(1, 12, 11, 1);
    const at::Tensor targets = at::arange(12).remainder(11).unsqueeze(0);
    return test::largest_difference(
        test::read_streams(read, model->network().lengths, tokens, targets),
        test::read_streams(*model, model->network().lengths, tokens, targets));
  }

  std::unique_ptr<nn::Model> model;
  std::vector<nn::NamedTensor> tensors;
};

}  // namespace

TEST_CASE("load_weights: the public code's state has tied tensors a second time") {
  PublicState state;
  state.tensors.push_back({"crit.out_layers.0.weight", state.at("word_emb.emb_layers.0.weight")});
  // One projection serves all clusters of one table.
  state.tensors.push_back({"crit.out_projs.2", state.at("word_emb.emb_projs.0")});
  state.tensors.push_back({"layers.0.dec_attn.r_w_bias", state.at("r_w_bias")});
  state.tensors.push_back({"pos_emb.inv_freq", at::ones({4})});
  CHECK(state.difference() == 0);
  state.tensors[state.tensors.size() - 3].tensor = state.at("word_emb.emb_projs.0") + 1;
  CHECK_THROWS_WITH_AS(
      state.difference(),
      doctest::Contains(
          "'crit.out_projs.2': the network ties this tensor to 'word_emb.emb_projs.0'"),
      FormatError);
}

TEST_CASE("read_weights: drops the library's prefix, and reverses its clusters") {
  PublicState state;
  for (nn::NamedTensor& tensor : state.tensors) {
    if (tensor.name.rfind("crit.", 0) != 0) tensor.name = "transformer." + tensor.name;
  }
  CHECK(state.difference() > 1e-3);
  state.at("crit.cluster_weight") = state.at("crit.cluster_weight").flip(0);
  state.at("crit.cluster_bias") = state.at("crit.cluster_bias").flip(0);
  CHECK(state.difference() == 0);
  state.tensors.push_back({"r_w_bias", at::ones({2, 3})});
  CHECK_THROWS_WITH_AS(state.difference(),
                       doctest::Contains("'r_w_bias' occurs with and without the prefix"),
                       FormatError);
}

}  // namespace ql::weights
