// Compares training on a device with training by the kernels of the CPU.

#include <ATen/record_function.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "base/error.h"
#include "machine/device.h"
#include "train/checkpoint.h"
#include "train/training_step.h"
#include "unit/complaint.h"
#include "unit/scratch.h"
#include "unit/test_device.h"
#include "unit/torch_doctest.h"
#include "unit/train/flat_support.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

// Packs data of several documents; rows reach the end of their parts after 8 steps.
struct Data {
  Data() {
    test::pack(scratch / "data", test::scrambled(110, 23), 23, "made up", {4, 6, 41, 80});
    reader =
        std::make_unique<shard::MultiReader>(std::vector<std::string>{(scratch / "data").string()});
  }
  test::ScratchFolder scratch;
  std::unique_ptr<shard::MultiReader> reader;
};

void set(at::Tensor parameter, double value) {
  const at::NoGradGuard no_gradient;
  parameter.view(-1)[3] = value;
}

double distance(const std::vector<nn::NamedTensor>& a, const std::vector<nn::NamedTensor>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].name == b[i].name);
    const at::Tensor difference = a[i].tensor.detach().cpu() - b[i].tensor.detach().cpu();
    largest = test::larger(largest, difference.abs().max().item<double>());
  }
  return largest;
}

std::vector<at::Tensor> copies(const std::vector<nn::NamedTensor>& tensors) {
  std::vector<at::Tensor> made;
  for (const nn::NamedTensor& tensor : tensors) made.push_back(tensor.tensor.detach().clone());
  return made;
}

bool equal(const std::vector<at::Tensor>& before, const std::vector<nn::NamedTensor>& now) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (!at::equal(before[i], now[i].tensor)) return false;
  }
  return before.size() == now.size();
}

std::vector<net::Network> networks() {
  std::vector<net::Network> all{test::tiny_ql(), test::tiny_xl(), test::tiny_compressive(),
                                test::tiny_compressive(net::Pool::kMostUsed)};
  all.push_back(test::tiny_ql());
  all.back().reset_memory_at_documents = true;
  all.back().scales = {1, 1, 1};
  all.back().lengths = {8, 8, 0};
  all.push_back(test::tiny_compressive());
  all.back().reset_memory_at_documents = true;
  all.push_back(test::tiny_xl());
  all.back().cutoffs = {7, 15};
  all.back().div_val = 2;
  return all;
}

// Counts the operations of this thread by which the host reads a value, or a shape that depends on
// values.
class Questions {
 public:
  Questions() {
    asked().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&note).scopes(
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~Questions() { at::removeCallback(handle_); }
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;

  static std::set<std::string>& asked() {
    static std::set<std::string> names;
    return names;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    const std::string name = function.name();
    for (const char* question : {"aten::item", "aten::_local_scalar_dense", "aten::nonzero",
                                 "aten::masked_select", "aten::is_nonzero", "aten::equal"}) {
      if (name == question) asked().insert(name);
    }
    return nullptr;
  }
  at::CallbackHandle handle_;
};

// Returns the device of the tests, on which steps are enqueued.
ComputeDevice as_device() { return {test::device(), true, /*enqueues_on_cpu=*/true}; }

// Writes a checkpoint after step 5.
void save(const std::filesystem::path& folder, const TrainedNetwork& trained,
          const TrainingConfig& config) {
  net::ModelFile description;
  description.network = trained.model().network();
  description.training = training_to_json(config);
  TrainingState state;
  state.step = 5;
  write_checkpoint(folder, description, trained, state);
}

// Disables dropout: on a GPU it draws other values than on the CPU.
void without_chance(net::Network& network) {
  if (!test::device().is_cpu()) network.dropout = network.dropatt = 0;
}

void compare_with_learner(const net::Network& network, TrainingConfig config) {
  const Data data;
  Streams streams(*data.reader, config.batch, network.lengths.segment);
  TrainedNetwork learner(network, config);
  TrainedNetwork device(network, config, as_device());
  StepSums sum;
  for (std::int64_t step = 0; step < 12; ++step) {
    const double rate = 0.01 / static_cast<double>(1 + step);
    const StepSums expected = learner.step(streams, step, rate);
    CHECK(device.step(streams, step, rate).steps == 0);
    sum.add(expected);
    if (step % 3 == 2) {
      const StepSums found = device.finish();
      CHECK(found.steps == sum.steps);
      CHECK(found.loss == doctest::Approx(sum.loss).epsilon(1e-5));
      CHECK(found.gradient_norm == doctest::Approx(sum.gradient_norm).epsilon(1e-4));
      sum = {};
    }
  }
  CHECK(device.finish().steps == 0);
  CHECK(distance(learner.model().parameters(), device.model().parameters()) < 2e-4);
  CHECK(distance(learner.memory().named(), device.memory().named()) < 2e-3);
  CHECK(distance(learner.moments(), device.moments()) < 2e-4);
}

// Sets the ids of step `number`, and its learning rate.
void give_input(TrainingStep& step, const TrainingConfig& config, const net::Network& network,
                std::int64_t number) {
  StepInput host(config.batch, network.lengths.segment, step.scales(), at::TensorOptions());
  const std::int64_t count = config.batch * (network.lengths.segment + 1);
  for (std::int64_t i = 0; i < count; ++i) host.ids[i] = (i * 7 + number * 5) % network.vocab_size;
  host.set_numbers(0.01, number, std::numeric_limits<double>::infinity(),
                   std::vector<double>(static_cast<std::size_t>(step.scales()), 1));
  step.input().ids.copy_(host.ids);
  step.input().numbers.copy_(host.numbers);
}

}  // namespace

// Compares the kernel's Adam with that of operations, on the device of the tests.
static void compare_adam(at::ScalarType type, double weight_decay) {
  std::vector<nn::NamedTensor> named, on_device;
  for (const std::int64_t size : {1, 3, 64, 1000}) {
    named.push_back({"p" + std::to_string(size), at::linspace(-1, 1, size, type)});
    if (size == 64) named.back().name = "r_w_bias";  // a bias, which does not decay
    on_device.push_back({named.back().name, named.back().tensor.to(test::device())});
  }
  const nn::FlatTensors by_kernel = nn::make_flat(named), by_operations = nn::make_flat(on_device);
  const AdamOptions options{0.8, 0.95, 1e-6, weight_decay};
  Adam kernel(by_kernel, options, true), operations(by_operations, options, false);
  const auto gradients = [&](double step) {
    std::vector<at::Tensor> made;
    for (std::size_t p = 0; p < named.size(); ++p) {
      const at::Tensor places = at::arange(named[p].tensor.numel(), type);
      // The second parameter gets no gradient in step 2.
      made.push_back(p == 1 && step == 2 ? at::Tensor() : (places * 7 + 13 * step).sin());
    }
    return made;
  };
  const auto moved = [](std::vector<at::Tensor> all) {
    for (at::Tensor& one : all) one = one.defined() ? one.to(test::device()) : one;
    return all;
  };
  for (std::int64_t step = 1; step <= 4; ++step) {
    const std::vector<at::Tensor> given = gradients(static_cast<double>(step));
    double squares = 0;
    for (const at::Tensor& gradient : given) {
      squares += gradient.defined() ? gradient.square().sum().item<double>() : 0;
    }
    const at::Tensor norm = norm_by_operations(concatenate(by_operations, moved(given)));
    CHECK(norm.item<double>() == doctest::Approx(std::sqrt(squares)).epsilon(1e-5));
    test::step(kernel, by_kernel, given, 0.01, 0.3);
    test::step(operations, by_operations, moved(given), 0.01, 0.3);
    const double tolerance = type == at::kFloat ? 2e-6 : 1e-12;
    CHECK(distance(by_kernel.named, by_operations.named) < tolerance);
    CHECK(distance(kernel.moments(), operations.moments()) < tolerance);
  }
  for (auto* adam : {&kernel, &operations}) {
    const nn::FlatTensors& parameters = adam == &kernel ? by_kernel : by_operations;
    const std::vector<at::Tensor> weights = copies(parameters.named),
                                  moments = copies(adam->moments());
    for (const double poison : {1.0, std::numeric_limits<double>::quiet_NaN()}) {
      std::vector<at::Tensor> poisoned;
      for (const at::Tensor& weight : weights) poisoned.push_back(at::full_like(weight, poison));
      test::step(*adam, parameters, poisoned, 0.1, poison, /*applies=*/false);
      CHECK(equal(weights, parameters.named));
      CHECK(equal(moments, adam->moments()));
      CHECK(adam->updates() == 4);
    }
  }
}

TEST_CASE("Adam: operations equal the kernel" * doctest::test_suite("numeric")) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    // Without decay of weights a GPU takes ATen's fused kernel.
    for (const double weight_decay : {3.0, 0.0}) compare_adam(type, weight_decay);
  }
}

TEST_CASE("Adam: skipped updates do not count in the bias correction") {
  const at::Tensor start = at::linspace(-1, 1, 5, at::kDouble);
  const AdamOptions options{0.8, 0.95, 1e-6};
  for (const bool by_kernel : {true, false}) {
    const nn::FlatTensors some = nn::make_flat({{"w", start.clone()}}),
                          expected = nn::make_flat({{"w", start.clone()}});
    Adam skipping(some, options, by_kernel), kernel(expected, options, true);
    const std::vector<bool> applies = {false, true, false, false, true, true};
    for (std::size_t step = 0; step < applies.size(); ++step) {
      const at::Tensor gradient = (start * (3 + static_cast<double>(step))).cos();
      test::step(skipping, some, {gradient}, 0.01, 0.3, applies[step]);
      if (applies[step]) test::step(kernel, expected, {gradient}, 0.01, 0.3);
      CHECK(distance(some.named, expected.named) < 1e-12);
      CHECK(skipping.updates() == kernel.updates());
    }
    skipping.set_updates(1000);
    CHECK(skipping.updates() == 1000);
  }
}

TEST_CASE("TrainingStep: a step whose scaled gradient overflows does not affect later ones") {
  net::Network network = test::tiny_xl();
  network.architecture = net::Architecture::kVanilla;  // a memory would be affected by a step
  network.lengths.memory = 0;
  network.dropout = network.dropatt = 0;
  const TrainingConfig config = test::tiny_config();
  const at::TensorOptions doubles = at::TensorOptions(at::kDouble).device(test::device());
  nn::Model whole(network, doubles), leaving_out(network, doubles);
  whole.initialise(1);
  leaving_out.initialise(1);
  machine::ProcessGroup& group = machine::ProcessGroup::single();
  TrainingStep expected(whole, config, group, /*enqueues=*/true);
  TrainingStep found(leaving_out, config, group, /*enqueues=*/true, /*scales_loss=*/true);
  bool overflows = false;
  leaving_out.parameters().back().tensor.register_hook([&](const at::Tensor& gradient) {
    return overflows ? gradient * std::numeric_limits<double>::infinity() : gradient;
  });
  for (std::int64_t number = 0; number < 6; ++number) {
    overflows = number == 0 || number == 3;
    give_input(found, config, network, number);
    found.compute(number);
    found.update();
    if (!overflows) {
      give_input(expected, config, network, number);
      expected.compute(number);
      expected.update();
    }
  }
  CHECK(found.take_report().sums.steps == 6);
  CHECK(found.moments().back().name == "loss_scale");
  CHECK(found.moments().back().tensor[0].item<double>() == LossScale::kFirst / 4);
  CHECK(found.adam().updates() == 4);
  CHECK(expected.adam().updates() == 4);
  CHECK(distance(whole.parameters(), leaving_out.parameters()) < 1e-12);
}

TEST_CASE("TrainedNetwork: a checkpoint counts the updates that applied") {
  const Data data;
  const net::Network network = test::tiny_xl();
  const TrainingConfig config = test::tiny_config();
  Streams streams(*data.reader, config.batch, network.lengths.segment);
  TrainedNetwork learner(network, config, as_device());
  for (std::int64_t step = 0; step < 5; ++step) learner.step(streams, step, 0.01);
  learner.finish();
  CHECK(learner.updates() == 5);
  learner.set_updates(3);  // as if two steps had been skipped
  save(data.scratch / "checkpoint", learner, config);
  TrainedNetwork resumed(network, config, as_device());
  TrainedNetwork on_cpu(network, config);
  CHECK(read_checkpoint(data.scratch / "checkpoint", resumed).step == 5);
  read_checkpoint(data.scratch / "checkpoint", on_cpu);
  CHECK(resumed.updates() == 3);
  CHECK(on_cpu.updates() == 3);
}

TEST_CASE("TrainedNetwork: a training may leave float16, and change to it") {
  const Data data;
  const net::Network network = test::tiny_xl();
  TrainingConfig single = test::tiny_config(), half = single;
  half.precision = machine::Precision::kFloat16;
  TrainedNetwork in_single(network, single, as_device());
  TrainedNetwork in_half(network, half, as_device());
  net::ModelFile description;
  description.network = network;
  description.training = training_to_json(single);
  write_checkpoint(data.scratch / "single", description, in_single, {});
  write_checkpoint(data.scratch / "half", description, in_half, {});
  read_checkpoint(data.scratch / "half", in_single);
  in_half.moments().back().tensor.fill_(7);
  read_checkpoint(data.scratch / "single", in_half);
  CHECK(in_half.moments().back().name == "loss_scale");
  CHECK(in_half.moments().back().tensor[0].item<double>() == 7);
  read_checkpoint(data.scratch / "half", in_half);
  CHECK(in_half.moments().back().tensor[0].item<double>() == LossScale::kFirst);
}

TEST_CASE("concatenate: the gradients are in the order of the parameters, whatever their sizes") {
  std::vector<nn::NamedTensor> named;
  std::vector<at::Tensor> gradients, expected;
  const auto options = at::TensorOptions(at::kFloat).device(test::device());
  for (const std::int64_t size : {3, 64, (1 << 20) + 1, 1 << 20, 5}) {
    named.push_back({std::to_string(size), at::zeros({size}, options)});
    // One has no gradient.
    gradients.push_back(size != 64 ? at::randn({size}, options) : at::Tensor());
    expected.push_back(size != 64 ? gradients.back() : at::zeros({size}, options));
    expected.push_back(at::zeros({(64 - size % 64) % 64}, options));
  }
  const GradientRange range = concatenate(nn::make_flat(named), gradients);
  CHECK(range.begin == 0);
  CHECK(at::equal(range.values, at::cat(expected)));
}

TEST_CASE("TrainedNetwork: trains as the CPU's kernels do" * doctest::test_suite("numeric")) {
  for (net::Network network : networks()) {
    without_chance(network);
    CAPTURE(net::to_text(network.architecture));
    CAPTURE(net::to_text(network.pool));
    CAPTURE(network.reset_memory_at_documents);
    TrainingConfig config = test::tiny_config();
    compare_with_learner(network, config);
    config.clip = 0;
    config.half_loss = true;
    const machine::OperationsOnly operations;
    compare_with_learner(network, config);
  }
}

TEST_CASE("TrainedNetwork: clips a gradient whose norm is above clip, and no other") {
  for (const bool enqueues : {false, true}) {
    CAPTURE(enqueues);
    const auto run = [enqueues](double clip) {
      const Data data;
      Streams streams(*data.reader, 3, 4);
      TrainingConfig config = test::tiny_config();
      config.clip = clip;
      TrainedNetwork learner(test::tiny_xl(), config, enqueues ? as_device() : ComputeDevice{});
      const StepSums now = learner.step(streams, 0, 0.01), late = learner.finish();
      // The first moment is a multiple of the clipped gradient.
      const at::Tensor moment = learner.moments().front().tensor.cpu();
      return std::pair(now.gradient_norm + late.gradient_norm, moment.norm().item<double>());
    };
    const auto [norm, plain] = run(0);
    CHECK(norm > 0);
    for (const auto& [share, expected] : {std::pair(0.25, 0.25), {0.999, 0.999}, {1.001, 1.0}}) {
      CAPTURE(share);
      const auto [same, clipped] = run(share * norm);
      CHECK(same == norm);
      CHECK(clipped / plain == doctest::Approx(expected).epsilon(1e-5));
    }
  }
}

TEST_CASE("TrainedNetwork: loss_of() is the loss of the step, and changes nothing" *
          doctest::test_suite("numeric")) {
  for (const net::Network& network : networks()) {
    CAPTURE(net::to_text(network.architecture));
    CAPTURE(net::to_text(network.pool));
    CAPTURE(network.reset_memory_at_documents);
    for (const bool on_cpu : {true, false}) {
      CAPTURE(on_cpu);
      const Data data, same;
      const std::int64_t segment = network.lengths.segment;
      Streams streams(*data.reader, 3, segment), others(*same.reader, 3, segment);
      TrainingConfig config = test::tiny_config();
      config.slices = on_cpu ? 2 : 1;
      const ComputeDevice compute = on_cpu ? ComputeDevice{} : as_device();
      TrainedNetwork asked(network, config, compute), silent(network, config, compute);
      const auto run = [](TrainedNetwork& trained, Streams& from, std::int64_t step) {
        const double loss = trained.step(from, step, 0.01).loss;
        return loss + trained.finish().loss;
      };
      for (std::int64_t step = 0; step < 10; ++step) {  // an epoch begins inside
        const double expected = asked.loss_of(streams, step);
        CHECK(run(asked, streams, step) == doctest::Approx(expected).epsilon(1e-5));
        run(silent, others, step);
      }
      CHECK(equal(copies(asked.model().parameters()), silent.model().parameters()));
      CHECK(equal(copies(asked.moments()), silent.moments()));
      asked.loss_of(streams, 10);
      CHECK(equal(copies(asked.memory().named()), silent.memory().named()));
      set(asked.model().parameters().front().tensor, std::numeric_limits<double>::infinity());
      CHECK_FALSE(std::isfinite(asked.loss_of(streams, 10)));
    }
  }
}

TEST_CASE(
    "TrainedNetwork: a loss that is not finite stops the training, however late it is noticed") {
  const Data data;
  Streams streams(*data.reader, 3, 4);
  TrainedNetwork learner(test::tiny_xl(), test::tiny_config(), as_device());
  learner.step(streams, 0, 0.1);
  CHECK(learner.finish().steps == 1);
  set(learner.model().parameters().front().tensor, std::numeric_limits<double>::quiet_NaN());
  const std::vector<at::Tensor> moments = copies(learner.moments());
  const at::Tensor last = learner.model().parameters().back().tensor.detach().clone();
  for (std::int64_t step = 6; step < 16; ++step) {
    learner.step(streams, step, 0.1);
    if (step == 10) {
      // Even a sound step after the failed one changes nothing.
      set(learner.model().parameters().front().tensor, 0);
      learner.set_memory(
          learner.memory().with([](const at::Tensor& states) { return at::zeros_like(states); }));
    }
  }
  const std::string said = test::complaint([&] { learner.finish(); });
  CHECK(said.find("the loss is not a number") != std::string::npos);
  CHECK(said.find("learning_rate") != std::string::npos);
  CHECK(equal(moments, learner.moments()));
  CHECK(at::equal(last, learner.model().parameters().back().tensor));
}

TEST_CASE("TrainedNetwork: an enqueued step whose loss has jumped changes no weights") {
  const Data data;
  Streams streams(*data.reader, 3, 4);
  TrainedNetwork learner(test::tiny_xl(), test::tiny_config(), as_device());
  learner.step(streams, 0, 0.001);
  learner.set_largest_loss(1);
  const std::vector<at::Tensor> weights = copies(learner.model().parameters());
  for (std::int64_t step = 1; step < 4; ++step) learner.step(streams, step, 0.001);
  try {
    learner.finish();
    FAIL("went on");
  } catch (const Diverged& error) {
    CHECK(error.found().step == 1);
    CHECK(error.found().loss == doctest::Approx(std::log(23.0)).epsilon(0.1));
    CHECK(std::string(error.what()).find("has jumped above 1") != std::string::npos);
  }
  CHECK(equal(weights, learner.model().parameters()));
  CHECK(learner.updates() == 1);
}

TEST_CASE("TrainedNetwork: a gradient that is not finite stops the training too") {
  const Data data;
  Streams streams(*data.reader, 3, 4);
  TrainedNetwork learner(test::tiny_xl(), test::tiny_config(), as_device());
  learner.model().parameters().back().tensor.register_hook([](const at::Tensor& gradient) {
    return gradient * std::numeric_limits<double>::infinity();
  });
  const std::vector<at::Tensor> weights = copies(learner.model().parameters());
  learner.step(streams, 0, 0.1);
  CHECK_THROWS_WITH_AS(learner.finish(), doctest::Contains("gradient's norm"), Error);
  CHECK(equal(weights, learner.model().parameters()));
}

TEST_CASE("TrainedNetwork: a checkpoint continues on the device, and on the CPU") {
  const Data data;
  net::Network network = test::tiny_ql();
  without_chance(network);
  const TrainingConfig config = test::tiny_config();
  Streams streams(*data.reader, config.batch, network.lengths.segment);
  TrainedNetwork whole(network, config, as_device());
  for (std::int64_t step = 0; step < 5; ++step) whole.step(streams, step, 0.01);
  whole.finish();
  save(data.scratch / "checkpoint", whole, config);
  TrainedNetwork resumed(network, config, as_device());
  TrainedNetwork on_cpu(network, config);
  read_checkpoint(data.scratch / "checkpoint", resumed);
  read_checkpoint(data.scratch / "checkpoint", on_cpu);
  for (std::int64_t step = 5; step < 9; ++step) {
    whole.step(streams, step, 0.01);
    resumed.step(streams, step, 0.01);
    on_cpu.step(streams, step, 0.01);
  }
  const double loss = whole.finish().loss, resumed_loss = resumed.finish().loss;
  // On a GPU sums of embeddings' gradients come in any order.
  const bool exact = test::device().is_cpu();
  CHECK((exact ? resumed_loss == loss : std::abs(resumed_loss - loss) < 1e-4));
  CHECK(distance(whole.moments(), resumed.moments()) <= (exact ? 0 : 1e-5));
  CHECK(distance(whole.model().parameters(), on_cpu.model().parameters()) < 2e-4);
}

TEST_CASE("can_be_recorded: a step that can be recorded reads nothing from the device") {
  int recorded = 0;
  for (const net::Network& network : networks()) {
    CAPTURE(net::to_text(network.architecture));
    CAPTURE(net::to_text(network.pool));
    TrainingConfig config = test::tiny_config();
    nn::Model model(network, at::TensorOptions(at::kFloat).device(test::device()));
    model.initialise(1);
    TrainingStep step(model, config, machine::ProcessGroup::single(), /*enqueues=*/true);
    const machine::OperationsOnly operations;
    const Questions questions;
    step.compute(0);
    step.update();
    CHECK((!can_be_recorded(network) || Questions::asked().empty()));
    recorded += can_be_recorded(network) ? 1 : 0;
    step.take_report();
  }
  CHECK(recorded == 6);
  const Questions questions;
  at::ones({}, at::kFloat).item<double>();
  CHECK(Questions::asked().count("aten::item") == 1);
}

TEST_CASE("LossScale: falls at once and rises slowly") {
  const at::Tensor yes = at::scalar_tensor(true, at::kBool),
                   no = at::scalar_tensor(false, at::kBool);
  LossScale scale(true, at::kCPU);
  const auto factor = [&] { return scale.factor().item<double>(); };
  CHECK(factor() == LossScale::kFirst);
  scale.update(yes);
  scale.update(no);
  CHECK(factor() == LossScale::kFirst / 2);
  for (std::int64_t step = 1; step < LossScale::kStepsToDouble; ++step) scale.update(yes);
  CHECK(factor() == LossScale::kFirst / 2);
  scale.update(yes);
  CHECK(factor() == LossScale::kFirst);
  for (int step = 0; step < 30; ++step) scale.update(no);
  CHECK(factor() == 1);
  scale.state().select(0, 0).fill_(LossScale::kLargest);
  scale.state().select(0, 1).fill_(LossScale::kStepsToDouble - 1);
  scale.update(yes);
  CHECK(factor() == LossScale::kLargest);

  LossScale fixed(false, at::kCPU);
  fixed.update(no);
  CHECK(fixed.factor().item<double>() == 1);
}

TEST_CASE("can_be_recorded: a step whose operations depend on its tokens cannot") {
  net::Network network = test::tiny_xl();
  CHECK(can_be_recorded(network));
  network.reset_memory_at_documents = true;
  CHECK(can_be_recorded(network));
  network.cutoffs = {7};
  CHECK_FALSE(can_be_recorded(network));
}

}  // namespace ql::train
