// Compares Adam and its decay with the scalar algorithm of the papers.

#include <cmath>

#include "train/adam.h"
#include "unit/torch_doctest.h"
#include "unit/train/flat_support.h"

namespace ql::train {
namespace {

// Computes Adam for one number, as in the paper's algorithm 1, with the decay of algorithm 2 of the
// paper on AdamW (its schedule multiplier and learning rate are our one rate).
struct ScalarAdam {
  double beta1, beta2, epsilon, decay = 0;
  double first = 0, second = 0;
  int t = 0;
  double update(double weight, double gradient, double rate) {
    ++t;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    const double first_hat = first / (1 - std::pow(beta1, t));
    const double second_hat = second / (1 - std::pow(beta2, t));
    return weight - rate * (first_hat / (std::sqrt(second_hat) + epsilon) + decay * weight);
  }
};

// Returns a value that depends on place and step, including zero and tiny ones.
double gradient_at(std::int64_t element, int step) {
  const double wave = std::sin(static_cast<double>(element * 7 + step * 13));
  return element % 5 == 0 ? 0.0 : wave * std::pow(10.0, -static_cast<double>(element % 4));
}

nn::FlatTensors parameters(at::ScalarType type) {
  // The sizes are below, at and above the size of a block of work.
  std::vector<nn::NamedTensor> made;
  for (const std::int64_t size : {1, 3, 16384, 40001}) {
    at::Tensor tensor = at::linspace(-1, 1, size, type);
    tensor.set_requires_grad(true);
    made.push_back({"p" + std::to_string(size), tensor});
  }
  return nn::make_flat(made);
}

std::vector<at::Tensor> gradients(const nn::FlatTensors& made, int step) {
  std::vector<at::Tensor> all;
  for (const nn::NamedTensor& parameter : made.named) {
    const at::Tensor gradient = at::empty(parameter.tensor.sizes(), at::kDouble);
    for (std::int64_t i = 0; i < gradient.numel(); ++i) {
      gradient.data_ptr<double>()[i] = gradient_at(i, step);
    }
    all.push_back(gradient.to(parameter.tensor.scalar_type()));
  }
  return all;
}

void compare_with_oracle(at::ScalarType type, double tolerance, double decay = 0) {
  auto made = parameters(type);
  made.named[1].name = "layers.0.dec_attn.layer_norm.weight";  // a norm, which does not decay
  Adam adam(made, {0.8, 0.95, 1e-6, decay}, /*by_kernel=*/true);
  std::vector<std::vector<ScalarAdam>> oracles;
  std::vector<std::vector<double>> weights;
  for (const nn::NamedTensor& parameter : made.named) {
    const auto size = static_cast<std::size_t>(parameter.tensor.numel());
    oracles.emplace_back(size, ScalarAdam{0.8, 0.95, 1e-6, oracles.size() == 1 ? 0 : decay});
    const at::Tensor wide = parameter.tensor.detach().to(at::kDouble);
    weights.emplace_back(wide.data_ptr<double>(), wide.data_ptr<double>() + size);
  }
  for (int step = 0; step < 4; ++step) {
    const double rate = 0.01 / (1 + step), scale = step % 2 == 0 ? 1.0 : 0.3;
    test::step(adam, made, gradients(made, step), rate, scale);
    double worst = 0;
    for (std::size_t p = 0; p < made.named.size(); ++p) {
      const at::Tensor wide = made.named[p].tensor.detach().to(at::kDouble);
      for (std::size_t i = 0; i < weights[p].size(); ++i) {
        const double gradient = gradient_at(static_cast<std::int64_t>(i), step) * scale;
        weights[p][i] = oracles[p][i].update(weights[p][i], gradient, rate);
        worst = test::larger(worst, std::abs(weights[p][i] - wide.data_ptr<double>()[i]));
      }
    }
    CHECK(worst < tolerance);
  }
  CHECK(adam.updates() == 4);
}

// Holds three weights with gradients that never change their sign, so that no moment is a
// difference.
class SteadyGradients {
 public:
  explicit SteadyGradients(at::ScalarType type)
      : parameters_(nn::make_flat({{"w", at::zeros({3}, type)}})), type_(type) {}

  const nn::FlatTensors& parameters() const { return parameters_; }
  static double of(std::int64_t element, int step) {
    return (1 + 0.5 * std::sin(step + 1.0)) * std::pow(10.0, -static_cast<double>(element));
  }
  void step(Adam& adam, int number) const {
    test::step(adam, parameters_,
               {at::tensor({of(0, number), of(1, number), of(2, number)}, type_)}, 0.01, 1);
  }

  // Returns the largest relative distance of moments and weights from those of `oracles`.
  double distance(const std::vector<nn::NamedTensor>& moments,
                  const std::vector<ScalarAdam>& oracles, const std::vector<double>& weights) {
    double worst = 0;
    for (std::size_t i = 0; i < oracles.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i);
      const auto compare = [&](const at::Tensor& found, double expected) {
        worst = test::larger(worst, std::abs(found[place].item<double>() / expected - 1));
      };
      compare(moments[0].tensor, oracles[i].first);
      compare(moments[1].tensor, oracles[i].second);
      compare(parameters_.named.front().tensor, weights[i]);
    }
    return worst;
  }

 private:
  nn::FlatTensors parameters_;
  at::ScalarType type_;
};

}  // namespace

TEST_CASE("Adam: decays close to 1 keep their digits, in the kernel and by operations" *
          doctest::test_suite("numeric")) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const double beta : {0.0, 0.5, 0.9, 0.999, 0.999999, 0.99999999}) {
      CAPTURE(beta);
      SteadyGradients of_kernel(type), of_operations(type);
      const AdamOptions options{beta, beta, 1e-12};
      Adam kernel(of_kernel.parameters(), options, true);
      Adam operations(of_operations.parameters(), options, false);
      std::vector<ScalarAdam> oracles(3, ScalarAdam{beta, beta, 1e-12});
      std::vector<double> weights(3, 0);
      for (int step = 0; step < 50; ++step) {
        of_kernel.step(kernel, step);
        of_operations.step(operations, step);
        for (std::size_t i = 0; i < oracles.size(); ++i) {
          const double gradient = SteadyGradients::of(static_cast<std::int64_t>(i), step);
          weights[i] = oracles[i].update(weights[i], gradient, 0.01);
        }
      }
      // float32 rounds 50 sums, by 6e-8 each.
      const double tolerance = type == at::kFloat ? 5e-6 : 1e-7;
      CHECK(of_kernel.distance(kernel.moments(), oracles, weights) < tolerance);
      CHECK(of_operations.distance(operations.moments(), oracles, weights) < tolerance);
    }
  }
}

TEST_CASE("Adam: follows the scalar algorithm" * doctest::test_suite("numeric")) {
  compare_with_oracle(at::kDouble, 1e-12);
  compare_with_oracle(at::kFloat, 2e-6);
}

TEST_CASE("Adam: weight decay is decoupled from the gradient" * doctest::test_suite("numeric")) {
  compare_with_oracle(at::kDouble, 1e-12, 3);
  compare_with_oracle(at::kFloat, 2e-6, 3);
  // float32 cannot represent this rate as 1 - rate: 1 - 1e-9 is 1 there.
  const nn::FlatTensors weight = nn::make_flat({{"w", at::ones({1}, at::kDouble)}});
  Adam adam(weight, {0.9, 0.999, 1e-8, 1e-6}, /*by_kernel=*/true);
  test::step(adam, weight, {at::Tensor()}, 1e-3, 1);
  CHECK(1 - weight.named.front().tensor.item<double>() == doctest::Approx(1e-9).epsilon(1e-6));
}

TEST_CASE("decays: biases, norms and embeddings do not decay unless all weights do") {
  for (const char* name : {"layers.3.dec_attn.qkv_net.weight", "layers.3.dec_attn.o_net.weight",
                           "layers.0.dec_attn.r_net.weight", "layers.0.pos_ff.CoreNet.0.weight",
                           "layers.0.compress.weight", "word_emb.emb_projs.1", "crit.out_projs.1",
                           "crit.cluster_weight", "scales.1.widen.weight"}) {
    CAPTURE(name);
    CHECK(decays(name, DecayOn::kMatrices));
    CHECK(decays(name, DecayOn::kAll));
  }
  for (const char* name :
       {"r_w_bias", "layers.1.dec_attn.r_r_bias", "layers.0.pos_ff.CoreNet.3.bias",
        "layers.0.dec_attn.layer_norm.weight", "layers.0.pos_ff.layer_norm.bias",
        "word_emb.emb_layers.0.weight", "layers.2.dec_attn.r_emb", "crit.out_layers.0.bias",
        "crit.cluster_bias", "layers.0.decompress.bias"}) {
    CAPTURE(name);
    CHECK_FALSE(decays(name, DecayOn::kMatrices));
    CHECK(decays(name, DecayOn::kAll));
  }
}

TEST_CASE("Adam: moments are named after their parameters and shared") {
  auto made = parameters(at::kFloat);
  Adam adam(made, {}, /*by_kernel=*/true);
  const auto moments = adam.moments();
  REQUIRE(moments.size() == 8);
  CHECK(moments[0].name == "first_moment.p1");
  CHECK(moments[7].name == "second_moment.p40001");
  test::step(adam, made, gradients(made, 2), 0.1, 1);
  CHECK(moments[7].tensor.abs().sum().item<double>() > 0);
}

}  // namespace ql::train
