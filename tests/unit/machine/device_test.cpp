// Tests the choice of device and precision, and rounding by autocast and by our own kernels.

#include <string>

#include "base/error.h"
#include "machine/device.h"
#include "machine/process_group.h"
#include "nn/compression.h"
#include "nn/memory_documents.h"
#include "unit/complaint.h"
#include "unit/float32_error.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql::machine {
namespace {

std::string refusal(const std::string& name) {
  return test::complaint<UsageError>([&] { find_device(name, ProcessGroup::single()); });
}

net::Network one_of(net::Architecture architecture) {
  const bool scales = architecture == net::Architecture::kTransformerQl;
  return test::small_network(
      architecture, scales ? std::vector<std::int64_t>{1, 1} : std::vector<std::int64_t>{2},
      scales ? 1 : 0, {4, 4, 0});
}

// Returns the losses of two segments and the gradients of their sum.
std::vector<at::Tensor> compute(const nn::Model& model, Precision precision) {
  const net::Network& network = model.network();
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  nn::Memory memory = at_lengths.start_memory(2);
  const nn::ModelPrecision in_precision(model, precision);
  std::vector<at::Tensor> results;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const at::Tensor tokens = test::random_tokens(2, 4, network.vocab_size, seed);
    const at::Tensor targets = test::random_tokens(2, 4, network.vocab_size, seed + 9);
    const at::Tensor losses =
        model.losses(at_lengths.forward(tokens, memory, {true, 5, seed}), targets);
    losses.mean().backward();
    results.push_back(losses.detach());
  }
  for (const nn::NamedTensor& parameter : model.parameters()) {
    results.push_back(parameter.tensor.grad());
  }
  return results;
}

}  // namespace

TEST_CASE("find_device: a device has a name, and must exist") {
  CHECK(find_device("cpu", ProcessGroup::single()).is_cpu());
  for (const char* name :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cudax", "cuda:100"}) {
    CAPTURE(name);
    CHECK(refusal(name).find("is not a device; use cpu, cuda") != std::string::npos);
  }
  // Every machine distinguishes a wrong name from a missing device.
  CHECK(refusal("cuda:99").find("--device: cuda:99") != std::string::npos);
}

TEST_CASE("choose_gpu: each process of a machine has a GPU of its own") {
  CHECK(choose_gpu("cuda", 4, 0, 1) == 0);
  CHECK(choose_gpu("cuda:3", 4, 0, 1) == 3);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(choose_gpu("cuda", 4, rank, 4) == rank);
    // A launcher has shown each process only its own GPU.
    CHECK(choose_gpu("cuda", 1, rank, 4) == 0);
    CHECK(choose_gpu("cuda:0", 1, rank, 4) == 0);
  }
  const auto refusal_of = [](const char* name, int gpus, int size, int rank = 0) {
    return test::complaint<UsageError>([&] { choose_gpu(name, gpus, rank, size); });
  };
  CHECK(refusal_of("cuda", 0, 2).find("no GPU was found") != std::string::npos);
  CHECK(refusal_of("cuda:4", 4, 1).find("the last GPU that CUDA finds is cuda:3") !=
        std::string::npos);
  CHECK(refusal_of("cuda:1", 4, 2).find("cuda:1 is one GPU, but 2 processes run on this machine") !=
        std::string::npos);
  // Every process is refused, including those for which there would be a GPU.
  CHECK(refusal_of("cuda", 2, 3).find("3 processes on a machine with 2 GPUs") != std::string::npos);
  // 4 + 1 processes on two machines are 3 a machine on average.
  CHECK(refusal_of("cuda", 3, 3, 3).find("4 processes on a machine with 3 GPUs") !=
        std::string::npos);
}

TEST_CASE("Precision: has names") {
  for (const std::string& name : all_names<Precision>()) {
    CHECK(to_text(value_named<Precision>(name, "here")) == name);
  }
  CHECK(to_text(Precision::kFloat16) == "float16");
  CHECK_THROWS_AS(value_named<Precision>("half", "here"), FormatError);
}

TEST_CASE("hides_amx: AVX512-FP16 of Intel without AMX") {
  constexpr unsigned kAmxBfloat16 = 1U << 22, kAvx512Float16 = 1U << 23;
  CHECK(hides_amx(true, kAvx512Float16));
  CHECK_FALSE(hides_amx(true, kAvx512Float16 | kAmxBfloat16));
  CHECK_FALSE(hides_amx(true, 0));  // Cooper Lake
  CHECK_FALSE(hides_amx(false, kAvx512Float16));
}

TEST_CASE("set_up_precision: the CPU computes in float32, and in bfloat16 if it can") {
  CHECK((set_up_precision(at::kCPU, Precision::kFloat32, ProcessGroup::single()) ==
         Precision::kFloat32));
  const bool rounds = bfloat16_products() != Bfloat16Products::kNone;
  CHECK((set_up_precision(at::kCPU, Precision::kAuto, ProcessGroup::single()) ==
         (rounds && !bfloat16_is_slow() ? Precision::kBfloat16 : Precision::kFloat32)));
  for (const Precision other : {Precision::kTf32, Precision::kFloat16}) {
    CHECK_THROWS_AS(set_up_precision(at::kCPU, other, ProcessGroup::single()), UsageError);
  }
  if (rounds) {
    CHECK((set_up_precision(at::kCPU, Precision::kBfloat16, ProcessGroup::single()) ==
           Precision::kBfloat16));
  } else {
    CHECK_THROWS_AS(set_up_precision(at::kCPU, Precision::kBfloat16, ProcessGroup::single()),
                    UsageError);
  }
}

TEST_CASE("OperationsOnly: kernels and operations compute the same network" *
          doctest::test_suite("numeric")) {
  for (const auto architecture :
       {net::Architecture::kTransformerXl, net::Architecture::kTransformerQl}) {
    for (const bool pre_lnorm : {false, true}) {
      net::Network network = one_of(architecture);
      network.pre_lnorm = pre_lnorm;
      network.dropout = network.dropatt = 0.2;
      const auto by_kernels = [&network](const test::Tensors& parameters) {
        nn::Model model(network, parameters.front().scalar_type());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const at::NoGradGuard no_gradient;
          at::Tensor(model.parameters()[i].tensor).copy_(parameters[i]);
        }
        return compute(model, Precision::kFloat32);
      };
      const auto by_operations = [&by_kernels](const test::Tensors& parameters) {
        const OperationsOnly operations;
        return by_kernels(parameters);
      };
      const nn::Model random = test::random_model(network, 3);
      test::Tensors parameters;
      for (const nn::NamedTensor& parameter : random.parameters()) {
        parameters.push_back(parameter.tensor);
      }
      test::check_float32(parameters, by_kernels, by_operations);
    }
  }
}

// Checks rounding by LibTorch's operations, and by our own kernels.
void check_rounding(const net::Network& network) {
  const auto run = [&network](Precision precision) {
    return compute(test::random_model(network, 3, at::kFloat), precision);
  };
  const std::vector<at::Tensor> exact = run(Precision::kFloat32);
  const std::vector<at::Tensor> rounded = run(Precision::kBfloat16);
  const std::vector<at::Tensor> again = run(Precision::kFloat32);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    CHECK((rounded[i].scalar_type() == at::kFloat));
    CHECK(!at::equal(exact[i], rounded[i]));
    const at::Tensor difference = rounded[i] - exact[i];
    CHECK(difference.norm().item<double>() < 0.1 * exact[i].norm().item<double>());
    CHECK(at::equal(exact[i], again[i]));
  }
}

TEST_CASE("ModelPrecision: rounds products, and only while it lives") {
  for (const bool pre_lnorm : {false, true}) {
    net::Network network = one_of(net::Architecture::kTransformerQl);
    network.pre_lnorm = pre_lnorm;
    network.init_std = 0.1;
    check_rounding(network);
    const OperationsOnly operations;
    check_rounding(network);
  }
}

TEST_CASE("ModelPrecision: a precision that the CPU does not have is refused") {
  const nn::Model model(one_of(net::Architecture::kTransformerXl), at::kFloat);
  for (const Precision precision : {Precision::kTf32, Precision::kFloat16, Precision::kAuto}) {
    CHECK_THROWS_WITH_AS(nn::ModelPrecision(model, precision),
                         doctest::Contains(to_text(precision).c_str()), ConfigError);
  }
}

TEST_CASE("StepOptions: document_offsets as a tensor forget the same states") {
  const nn::MemoryCover covers[] = {{1, 0, 4, 1}, {2, 0, 3, 1}, {2, 6, 1, 1}, {3, 5, 2, 2}};
  const std::vector<std::int64_t> document_offsets = {0, 1, 2,  3,  4,  5,  6,
                                                      7, 8, 11, 12, 13, 40, 1000};
  const at::Tensor tensor = at::tensor(document_offsets, at::kLong);
  for (const nn::MemoryCover& cover : covers) {
    for (const std::int64_t length : {1, 4, 9}) {
      nn::StepOptions by_host, by_tensor;
      by_host.document_offsets = document_offsets;
      by_tensor.document_offset_tensor = tensor;
      const at::Tensor expected = nn::forgotten_states(cover, length, by_host, at::kCPU);
      REQUIRE(expected.defined());
      CHECK(at::equal(nn::forgotten_states(cover, length, by_tensor, at::kCPU), expected));
    }
  }
}

TEST_CASE("average_scales: droppath by weights is droppath by choice") {
  std::vector<at::Tensor> scales;
  for (int i = 0; i < 4; ++i) {
    scales.push_back(at::arange(6, at::kDouble).view({1, 2, 3}) * (i + 1) + i);
  }
  std::vector<std::int64_t> chosen(4);
  for (std::uint64_t number = 0; number < 60; ++number) {
    nn::StepOptions step{true, 7, number};
    const at::Tensor by_choice = nn::average_scales(scales, 0.6, step);
    ++chosen[static_cast<std::size_t>(droppath_first_scale(4, 0.6, step))];
    step.scale_weights = at::tensor(nn::droppath_weights(4, 0.6, step), at::kDouble);
    CHECK(at::allclose(nn::average_scales(scales, 0.6, step), by_choice));
  }
  for (const std::int64_t count : chosen) CHECK(count > 0);
}

TEST_CASE("Autocast: a changed weight is rounded again, and rounding ends with the block") {
  const OperationsOnly operations;
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const auto product = [&] { return at::mm(at::ones({2, 2}), weight)[0][0].item<double>(); };
  for (const double value : {1.0, 3.0}) {
    {
      const at::NoGradGuard no_gradient;
      weight.fill_(value + 0x1p-12);  // more digits than bfloat16 has
    }
    {
      const Autocast autocast(at::kCPU, Precision::kBfloat16);
      CHECK(product() == 2 * value);
    }
    CHECK(product() == 2 * value + 0x1p-11);
  }
}

}  // namespace ql::machine
