// Training against a second Transformer-XL and its own training loop: slow and obvious, state by
// state, in double. It shares nothing with lib/nn and lib/train but the initial weights.
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scratch.h"
#include "torch_doctest.h"
#include "train/trainer.h"
#include "train_support.h"
#include "weights/safetensors.h"

namespace ql::train {
namespace {

constexpr std::size_t kTokens = 90;  // 14 steps an epoch
constexpr std::int64_t kSteps = 20;

using States = std::vector<at::Tensor>;  // of one row, each [d_model]

class SlowTransformerXl {
 public:
  SlowTransformerXl(const net::Network& network, const TrainingConfig& config,
                    const weights::TensorFile& weights)
      : network_(network), config_(config) {
    for (const auto& entry : weights.tensors) {
      weights_[entry.name] = entry.tensor.to(at::kDouble).clone().set_requires_grad(true);
      first_[entry.name] = at::zeros_like(weights_[entry.name]).detach();
      second_[entry.name] = at::zeros_like(weights_[entry.name]).detach();
    }
    for (std::int64_t i = 0; i < network.lengths.memory + network.lengths.segment; ++i) {
      sinusoids_.push_back(sinusoid(static_cast<double>(i)));
    }
    forget();
  }

  void forget() {
    const at::Tensor zero = at::zeros({network_.d_model}, at::kDouble);
    const States empty(static_cast<std::size_t>(network_.lengths.memory), zero);
    const auto layers = static_cast<std::size_t>(network_.scales[0]);
    memory_.assign(static_cast<std::size_t>(config_.batch), std::vector<States>(layers, empty));
  }

  // One step on rows of segment + 1 tokens; returns the mean loss before it.
  double step(const std::vector<std::vector<std::int64_t>>& rows) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    double targets = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const States outputs = run(row, {rows[row].begin(), rows[row].end() - 1});
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const at::Tensor logits = at::mv(weight("word_emb.emb_layers.0.weight"), outputs[i]) +
                                  weight("crit.out_layers.0.bias");
        sum = sum + logits.exp().sum().log() - logits[rows[row][i + 1]];
        ++targets;
      }
    }
    const at::Tensor loss = sum / targets;
    loss.backward();
    update();
    return loss.item<double>();
  }

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }

  at::Tensor norm(const std::string& name, const at::Tensor& state) const {
    const at::Tensor centered = state - state.mean();
    const at::Tensor deviation = (centered.square().mean() + 1e-5).sqrt();
    return centered / deviation * weight(name + ".weight") + weight(name + ".bias");
  }

  at::Tensor sinusoid(double distance) const {
    const auto d_model = static_cast<double>(network_.d_model);
    std::vector<double> values;
    for (const bool sine : {true, false}) {
      for (double i = 0; i < d_model / 2; ++i) {
        const double angle = distance / std::pow(10000.0, 2 * i / d_model);
        values.push_back(sine ? std::sin(angle) : std::cos(angle));
      }
    }
    return at::tensor(values, at::kDouble);
  }

  // What state `query` of the window takes from itself and all before it.
  at::Tensor attend(const std::string& layer, const States& window, std::size_t query) const {
    const std::int64_t width = network_.d_head, all = network_.n_head * width;
    const std::string biases = network_.untie_r ? layer + "dec_attn." : "";
    const at::Tensor& qkv = weight(layer + "dec_attn.qkv_net.weight");
    std::vector<at::Tensor> heads;
    for (std::int64_t head = 0; head < network_.n_head; ++head) {
      const auto part = [&](std::int64_t which, const at::Tensor& state) {
        return at::mv(qkv.narrow(0, which * all + head * width, width), state);
      };
      const at::Tensor q = part(0, window[query]);
      at::Tensor sum = at::zeros({width}, at::kDouble), total = at::zeros({}, at::kDouble);
      for (std::size_t key = 0; key <= query; ++key) {
        const at::Tensor r =
            at::mv(weight(layer + "dec_attn.r_net.weight").narrow(0, head * width, width),
                   sinusoids_[query - key]);
        const at::Tensor content =
            at::dot(q + weight(biases + "r_w_bias")[head], part(1, window[key]));
        const at::Tensor place = at::dot(q + weight(biases + "r_r_bias")[head], r);
        const at::Tensor share = ((content + place) / std::sqrt(static_cast<double>(width))).exp();
        sum = sum + share * part(2, window[key]);
        total = total + share;
      }
      heads.push_back(sum / total);
    }
    return at::mv(weight(layer + "dec_attn.o_net.weight"), at::cat(heads));
  }

  at::Tensor feed_forward(const std::string& layer, const at::Tensor& state) const {
    const std::string core = layer + "pos_ff.CoreNet.";
    const at::Tensor inner =
        (at::mv(weight(core + "0.weight"), state) + weight(core + "0.bias")).relu();
    return at::mv(weight(core + "3.weight"), inner) + weight(core + "3.bias");
  }

  States run_layer(const std::string& layer, const States& memory, const States& segment) const {
    const std::string before = layer + "dec_attn.layer_norm", after = layer + "pos_ff.layer_norm";
    States window = memory;
    window.insert(window.end(), segment.begin(), segment.end());
    for (at::Tensor& state : window) {
      state = network_.pre_lnorm ? norm(before, state) : state;
    }
    States outputs;
    for (std::size_t i = 0; i < segment.size(); ++i) {
      at::Tensor state = segment[i] + attend(layer, window, memory.size() + i);
      if (network_.pre_lnorm) {
        outputs.push_back(state + feed_forward(layer, norm(after, state)));
      } else {
        state = norm(before, state);
        outputs.push_back(norm(after, state + feed_forward(layer, state)));
      }
    }
    return outputs;
  }

  States run(std::size_t row, const std::vector<std::int64_t>& tokens) {
    States states;
    for (const std::int64_t token : tokens) {
      states.push_back(weight("word_emb.emb_layers.0.weight")[token] *
                       std::sqrt(static_cast<double>(network_.d_model)));
    }
    for (std::size_t i = 0; i < memory_[row].size(); ++i) {
      States& memory = memory_[row][i];
      const States inputs = states;
      states = run_layer("layers." + std::to_string(i) + ".", memory, inputs);
      for (const at::Tensor& state : inputs) {
        memory.push_back(state.detach());
      }
      memory.erase(memory.begin(), memory.end() - network_.lengths.memory);
    }
    return states;
  }

  // Clips the gradient, and updates by Adam at the rate of this step of the schedule.
  void update() {
    const at::NoGradGuard no_gradient;
    double squares = 0;
    for (const auto& [name, tensor] : weights_) {
      squares += tensor.grad().square().sum().item<double>();
    }
    const double scale = std::min(1.0, config_.clip / std::sqrt(squares));
    const double done = static_cast<double>(steps_) / static_cast<double>(config_.steps);
    const double cosine = (1 + std::cos(std::acos(-1.0) * done)) / 2;
    ++steps_;
    const auto n = static_cast<double>(steps_);
    const double rate = config_.learning_rate *
                        (config_.min_lr_ratio + (1 - config_.min_lr_ratio) * cosine) *
                        std::min(1.0, n / static_cast<double>(config_.warmup_steps));
    const double beta1 = config_.adam_beta1, beta2 = config_.adam_beta2;
    for (auto& [name, tensor] : weights_) {
      const at::Tensor gradient = tensor.grad() * scale;
      at::Tensor &first = first_[name], &second = second_[name];
      first = beta1 * first + (1 - beta1) * gradient;
      second = beta2 * second + (1 - beta2) * gradient * gradient;
      const at::Tensor mean = first / (1 - std::pow(beta1, n));
      const at::Tensor spread = (second / (1 - std::pow(beta2, n))).sqrt();
      tensor.sub_(rate * mean / (spread + config_.adam_epsilon));
      tensor.mutable_grad() = at::Tensor();
    }
  }

  net::Network network_;
  TrainingConfig config_;
  std::vector<at::Tensor> sinusoids_;  // by distance
  std::map<std::string, at::Tensor> weights_, first_, second_;
  std::vector<std::vector<States>> memory_;  // of each row and layer, the oldest first
  std::int64_t steps_ = 0;
};

// Two trainings of the same data from the same weights.
struct Comparison {
  test::ScratchFolder scratch;
  std::vector<shard::TokenId> ids = test::scrambled(kTokens, 23);
  net::Network network = test::tiny_xl();
  TrainingConfig config = test::tiny_config();

  Comparison() {
    test::pack(scratch / "data", ids, 23);
    network.dropout = network.dropatt = 0;
    network.d_model = 8;
    network.d_head = 4;
    network.scales = {2};
    network.lengths = {3, 4, 0};
    network.init_std = 0.3;
    config.batch = 2;
    config.learning_rate = 0.01;
    config.steps = kSteps;
    config.log_interval = 1;
  }

  void train(const char* run, const char* init, std::int64_t stop_at) const {
    TrainingTask task;
    task.run = scratch / run;
    task.init = *init == '\0' ? std::filesystem::path() : scratch / init / "last";
    task.network = network;
    task.config = config;
    task.config.seed = *init == '\0' ? 9 : 5;
    task.stop_at = stop_at;
    task.provenance = Json::object();
    shard::TokenReader data(scratch / "data"), validation(scratch / "data");
    train::train(task, data, validation);
  }

  // The losses of the log of a training that starts from the checkpoint init/last.
  std::vector<double> logged() const {
    train("run", "init", 0);
    std::vector<double> losses;
    const std::string log = test::slurp(scratch / "run" / "log.jsonl");
    for (std::size_t begin = 0; begin < log.size(); begin = log.find('\n', begin) + 1) {
      const Json record = parse_json(log.substr(begin, log.find('\n', begin) - begin), "log");
      if (record["kind"] == "train") {
        losses.push_back(record["loss"].get<double>());
      }
    }
    return losses;
  }

  std::vector<double> expected(bool carries_memory) const {
    SlowTransformerXl slow(
        network, config,
        weights::read_safetensors(scratch / "init" / "last" / "model.safetensors"));
    const auto batch = static_cast<std::size_t>(config.batch);
    const auto segment = static_cast<std::size_t>(network.lengths.segment);
    const std::size_t part = kTokens / batch;
    std::vector<double> losses;
    std::size_t begin = 0;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (begin + segment + 1 > part) {
        begin = 0;
      }
      if (begin == 0 || !carries_memory) {
        slow.forget();
      }
      std::vector<std::vector<std::int64_t>> rows;
      for (std::size_t row = 0; row < batch; ++row) {
        const auto first = ids.begin() + static_cast<std::ptrdiff_t>(row * part + begin);
        rows.emplace_back(first, first + segment + 1);
      }
      losses.push_back(slow.step(rows));
      begin += segment;
    }
    return losses;
  }
};

double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / b[i]);
  }
  return largest;
}

}  // namespace

TEST_CASE("twenty losses of a training from given weights equal those of a second implementation") {
  for (const int variant : {0, 1, 2}) {
    CAPTURE(variant);
    Comparison comparison;
    comparison.network.pre_lnorm = variant != 1;
    comparison.network.untie_r = variant == 2;
    comparison.train("init", "", 1);
    const std::vector<double> losses = comparison.logged();
    REQUIRE(losses.size() == kSteps);
    CHECK(largest_relative_difference(losses, comparison.expected(true)) < 1e-4);
    if (variant > 0) {
      continue;
    }
    // What the comparison would notice.
    CHECK(largest_relative_difference(losses, comparison.expected(false)) > 1e-3);
    comparison.config.learning_rate *= 1.05;
    CHECK(largest_relative_difference(losses, comparison.expected(true)) > 1e-3);
  }
}

}  // namespace ql::train
