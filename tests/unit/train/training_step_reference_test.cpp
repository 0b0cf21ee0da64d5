// Compares training with a slow and obvious loop around the network on one page, in double. It
// shares nothing with lib/nn and lib/train except the initial weights.
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/trainer.h"
#include "unit/network_on_one_page.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"
#include "weights/safetensors.h"

namespace ql::train {
namespace {

constexpr std::size_t kTokens = 90;  // 14 steps an epoch, or 11
constexpr std::int64_t kSteps = 20;

class SlowTraining {
 public:
  SlowTraining(const net::Network& network, const TrainingConfig& config,
               const weights::TensorFile& weights)
      : network_(network), config_(config) {
    for (const auto& entry : weights.tensors) {
      weights_[entry.name] = entry.tensor.to(at::kDouble).clone().set_requires_grad(true);
      first_[entry.name] = at::zeros_like(weights_[entry.name]).detach();
      second_[entry.name] = at::zeros_like(weights_[entry.name]).detach();
    }
    forget();
  }

  // Every row reads on in its own stream, with the same weights.
  void forget() {
    rows_.assign(static_cast<std::size_t>(config_.batch),
                 test::NetworkOnOnePage{network_, weights_});
  }

  // Runs one step on rows of segment + 1 tokens; returns the mean loss before it.
  double step(const std::vector<std::vector<std::int64_t>>& rows) {
    at::Tensor sum = at::zeros({}, at::kDouble), auxiliary = sum;
    double targets = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto reading =
          rows_[row].read(network_.lengths, {rows[row].begin(), rows[row].end() - 1});
      auxiliary = auxiliary + reading.reconstruction.sum() / static_cast<double>(rows.size());
      for (std::size_t i = 1; i < rows[row].size(); ++i) {
        sum =
            sum + rows_[row].loss(reading.outputs[static_cast<std::int64_t>(i) - 1], rows[row][i]);
        ++targets;
      }
    }
    const at::Tensor loss = sum / targets;
    (loss + 0.01 * auxiliary).backward();
    update();
    return loss.item<double>();
  }

 private:
  // Returns the schedule's fraction of the highest rate, after steps_ steps.
  double part_of_rate() const {
    const double done = static_cast<double>(steps_) / static_cast<double>(config_.steps);
    const double warm_up = config_.warmup_steps / static_cast<double>(config_.steps);
    const double left = 1 - done, least = config_.min_lr_ratio;
    switch (config_.schedule) {
      case Schedule::kLinear:
        return done < warm_up ? 1 : least + (1 - least) * left / (1 - warm_up);
      case Schedule::kInverseSquareRoot:
        return std::max(least, std::min(1.0, std::sqrt(config_.warmup_steps /
                                                       static_cast<double>(steps_ + 1))));
      case Schedule::kConstant:
        return std::min(1.0, least + (1 - least) * left / config_.decay_fraction);
      case Schedule::kCosine:
        break;
    }
    return least + (1 - least) * (1 + std::cos(std::acos(-1.0) * done)) / 2;
  }

  // Clips the gradient, and updates by Adam at the rate of this step of the schedule.
  void update() {
    const at::NoGradGuard no_gradient;
    double squares = 0;
    for (const auto& [name, tensor] : weights_) {
      squares += tensor.grad().square().sum().item<double>();
    }
    const double scale = std::min(1.0, config_.clip / std::sqrt(squares));
    const double rate = config_.learning_rate * part_of_rate() *
                        std::min(1.0, static_cast<double>(steps_ + 1) / config_.warmup_steps);
    ++steps_;
    const auto n = static_cast<double>(steps_);
    const double beta1 = config_.adam.beta1, beta2 = config_.adam.beta2;
    for (auto& [name, tensor] : weights_) {
      const at::Tensor gradient = tensor.grad() * scale;
      at::Tensor &first = first_[name], &second = second_[name];
      first = beta1 * first + (1 - beta1) * gradient;
      second = beta2 * second + (1 - beta2) * gradient * gradient;
      const at::Tensor mean = first / (1 - std::pow(beta1, n));
      const at::Tensor spread = (second / (1 - std::pow(beta2, n))).sqrt();
      const bool bias = name.find("bias") != std::string::npos;
      const bool matrix = tensor.dim() == 2 && !bias && name != "word_emb.emb_layers.0.weight";
      const bool decays = matrix || config_.adam.decay_on == DecayOn::kAll;
      tensor.mul_(1 - (decays ? rate * config_.adam.weight_decay : 0));
      tensor.sub_(rate * mean / (spread + config_.adam.epsilon));
      tensor.mutable_grad() = at::Tensor();
    }
  }

  net::Network network_;
  TrainingConfig config_;
  std::map<std::string, at::Tensor> weights_, first_, second_;
  std::vector<test::NetworkOnOnePage> rows_;
  std::int64_t steps_ = 0;
};

// Holds two trainings of the same data from the same weights.
struct Comparison {
  test::ScratchFolder scratch;
  std::vector<shard::TokenId> ids = test::scrambled(kTokens, 23);
  net::Network network;
  TrainingConfig config = test::tiny_config();

  explicit Comparison(net::Network of) : network(std::move(of)) {
    test::pack(scratch / "data", ids, 23);
    network.dropout = network.dropatt = network.droppath = 0;
    network.d_model = 8;
    network.d_head = 4;
    network.init_std = 0.3;
    config.batch = 2;
    config.learning_rate = 0.01;
    config.steps = kSteps;
    config.log_interval = 1;
  }

  void train(const char* run, const char* init, std::int64_t stop_at,
             Start start = Start::kNew) const {
    TrainingTask task;
    task.start = start;
    task.run = scratch / run;
    task.init = *init == '\0' ? std::filesystem::path() : scratch / init / "last";
    task.network = network;
    task.config = config;
    task.config.seed = *init == '\0' ? 9 : 5;
    task.stop_at = stop_at;
    task.provenance = Json::object();
    shard::MultiReader data({(scratch / "data").string()}),
        validation({(scratch / "data").string()});
    train::train(task, data, validation);
  }

  // Returns the losses in the log of a training that starts from the checkpoint init/last, and is
  // resumed after `pause` steps.
  std::vector<double> logged(std::int64_t pause = 0) const {
    if (pause > 0) train("run", "init", pause);
    train("run", "init", 0, pause > 0 ? Start::kResume : Start::kNew);
    std::vector<double> losses;
    const std::string log = test::slurp(scratch / "run" / "log.jsonl");
    for (std::size_t begin = 0; begin < log.size(); begin = log.find('\n', begin) + 1) {
      const Json record = parse_json(log.substr(begin, log.find('\n', begin) - begin), "log");
      if (record["kind"] == "train") losses.push_back(record["loss"].get<double>());
    }
    return losses;
  }

  std::vector<double> expected(bool carries_memory) const {
    SlowTraining slow(network, config,
                      weights::read_safetensors(scratch / "init" / "last" / "model.safetensors"));
    const auto batch = static_cast<std::size_t>(config.batch);
    const auto segment = static_cast<std::size_t>(network.lengths.segment);
    const std::size_t part = kTokens / batch;
    std::vector<double> losses;
    std::size_t begin = 0;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (begin + segment + 1 > part) begin = 0;
      if (begin == 0 || !carries_memory) slow.forget();
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
    largest = test::larger(largest, std::abs(a[i] - b[i]) / b[i]);
  }
  return largest;
}

}  // namespace

TEST_CASE("train: twenty losses from given weights equal those of a second implementation") {
  net::Network xl = test::tiny_xl();
  xl.scales = {2};
  xl.lengths = {3, 4, 0};
  net::Network post_lnorm = xl, untied = xl;
  post_lnorm.pre_lnorm = false;
  untied.untie_r = true;
  for (const net::Network& network :
       {xl, post_lnorm, untied, test::tiny_ql(), test::tiny_compressive()}) {
    CAPTURE(net::network_to_json(network).dump());
    Comparison comparison(network);
    comparison.train("init", "", 1);
    const std::vector<double> losses = comparison.logged();
    REQUIRE(losses.size() == kSteps);
    CHECK(largest_relative_difference(losses, comparison.expected(true)) < 1e-4);
    // The comparison notices these mistakes.
    CHECK(largest_relative_difference(losses, comparison.expected(false)) > 1e-3);
    comparison.config.learning_rate *= 1.05;
    CHECK(largest_relative_difference(losses, comparison.expected(true)) > 1e-3);
  }
}

TEST_CASE("train: weight decay and every schedule equal the second implementation, also resumed") {
  for (const char* schedule : {"cosine", "linear", "inverse-square-root", "constant"}) {
    for (const DecayOn decay_on : {DecayOn::kMatrices, DecayOn::kAll}) {
      CAPTURE(schedule);
      CAPTURE(to_text(decay_on));
      Comparison comparison(test::tiny_ql());
      comparison.config.schedule = value_named<Schedule>(schedule, "test");
      comparison.config.decay_fraction = 0.6;
      comparison.config.adam.weight_decay = 2;
      comparison.config.adam.decay_on = decay_on;
      comparison.train("init", "", 1);
      const std::vector<double> losses = comparison.logged(9);
      REQUIRE(losses.size() == kSteps);
      CHECK(largest_relative_difference(losses, comparison.expected(true)) < 1e-4);
      // The comparison notices these mistakes.
      const TrainingConfig right = comparison.config;
      comparison.config.adam.weight_decay = 1.9;
      CHECK(largest_relative_difference(losses, comparison.expected(true)) > 2e-4);
      comparison.config = right;
      comparison.config.adam.decay_on =
          decay_on == DecayOn::kAll ? DecayOn::kMatrices : DecayOn::kAll;
      CHECK(largest_relative_difference(losses, comparison.expected(true)) > 2e-4);
      comparison.config = right;
      comparison.config.schedule =
          right.schedule == Schedule::kCosine ? Schedule::kLinear : Schedule::kCosine;
      CHECK(largest_relative_difference(losses, comparison.expected(true)) > 2e-4);
    }
  }
}

}  // namespace ql::train
