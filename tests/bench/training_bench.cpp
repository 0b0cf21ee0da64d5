// Measures training steps end to end, without files: tokens and operations a second, their share of
// a matrix product's speed in the same run, and the largest memory of the process.
//
// Usage: ql_bench_training [--rounds N] [--threads N] [--network I] [--json FILE] GROUP
// The networks of a group, or only its I-th, and the product take turns; every figure is the median
// of the rounds. A process runs one group; memory is reported if that is a single network. Writes a
// table to standard output, and appends one JSON object per network to FILE. Without a group it
// lists the groups.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/resources.h"
#include "machine/device.h"
#include "machine/tensor_memory.h"
#include "machine/threads.h"
#include "net/cost.h"
#include "net/model_file.h"
#include "scratch_folder.h"
#include "shard/pack_writer.h"
#include "train/gradients.h"
#include "train/memory_trial.h"
#include "train/training_step.h"

namespace {

using ql::net::Lengths;
using ql::net::Network;

constexpr std::int64_t kSimpleBooks = 11492;
constexpr double kMebibyte = 1 << 20;

struct Shape {
  std::string name;
  Network network;
  std::int64_t batch;
  ql::machine::Precision precision = ql::machine::Precision::kFloat32;
};

// The paper's networks for SimpleBooks-2: 8 layers of width 256, 4 heads of 64, inner width 1024.
Shape simplebooks(const std::string& name, const std::string& preset, const Lengths& lengths,
                  std::int64_t batch) {
  Network network =
      ql::net::read_preset(std::string(QL_SHARE) + "/presets/simplebooks-2-" + preset + ".json", {},
                           {})
          .network;
  network.vocab_size = kSimpleBooks;
  network.lengths = lengths;
  return {name, network, batch};
}

Shape in_bfloat16(Shape shape) {
  shape.name += " bfloat16";
  shape.precision = ql::machine::Precision::kBfloat16;
  return shape;
}

Shape without_dropout(Shape shape) {
  shape.name += " without dropout";
  shape.network.dropout = shape.network.dropatt = shape.network.droppath = 0;
  return shape;
}

// Transformer-XL's size for enwik8 (Dai et al., 2019), with shorter lengths.
Shape characters() {
  Shape shape = simplebooks("char", "xl", {128, 128, 0}, 8);
  Network& network = shape.network;
  network.vocab_size = 205;
  network.scales = {12};
  network.d_model = 512;
  network.n_head = 8;
  network.d_inner = 2048;
  network.pre_lnorm = false;
  network.dropatt = 0;
  return shape;
}

// Equal numbers of tokens a step, where one row has them, over windows from short to long.
std::vector<Shape> windows(const std::string& preset) {
  std::vector<Shape> shapes;
  const bool rounds = ql::machine::bfloat16_products() != ql::machine::Bfloat16Products::kNone;
  for (const auto& [length, batch] :
       {std::pair{8, 128}, {64, 16}, {512, 4}, {1024, 2}, {4096, 1}}) {
    shapes.push_back(simplebooks(fmt::format("{} {}/{}", preset, length, length), preset,
                                 {length, length, 0}, batch));
    if (rounds) shapes.push_back(in_bfloat16(shapes.back()));
  }
  return shapes;
}

std::vector<std::pair<std::string, std::vector<Shape>>> groups() {
  const Shape sb2 = simplebooks("SB2", "xl", {8, 8, 0}, 128);
  const Shape sb2_long = simplebooks("SB2-long", "xl", {64, 64, 0}, 16);
  const Shape ql = simplebooks("QL 08/08", "ql", {8, 8, 0}, 128);
  const Shape paper_xl = simplebooks("XL 04/12", "xl", {4, 12, 0}, 256);
  const Shape paper_ql = simplebooks("QL 04/12", "ql", {4, 12, 0}, 256);
  const Shape compressive = simplebooks("Compressive 04/06/06", "compressive", {4, 6, 6}, 256);
  std::vector<std::pair<std::string, std::vector<Shape>>> all = {
      {"sb2", {sb2, without_dropout(sb2)}},
      {"sb2-long", {sb2_long}},
      {"scales", {sb2, ql}},
      {"paper", {paper_xl, paper_ql, compressive}},
      {"char", {characters()}},
      {"windows", windows("xl")},
      {"windows-ql", windows("ql")}};
  if (ql::machine::bfloat16_products() == ql::machine::Bfloat16Products::kNone) return all;
  all.push_back({"bfloat16-sb2", {sb2, in_bfloat16(sb2)}});
  all.push_back({"bfloat16-sb2-long", {sb2_long, in_bfloat16(sb2_long)}});
  all.push_back({"bfloat16-ql", {ql, in_bfloat16(ql)}});
  all.push_back({"bfloat16-paper-xl", {paper_xl, in_bfloat16(paper_xl)}});
  all.push_back({"bfloat16-paper-ql", {paper_ql, in_bfloat16(paper_ql)}});
  all.push_back({"bfloat16-paper-compressive", {compressive, in_bfloat16(compressive)}});
  return all;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

ql::train::TrainingConfig make_config(const Shape& shape) {
  ql::train::TrainingConfig config;
  config.batch = shape.batch;
  config.steps = 1000;
  config.learning_rate = 1e-4;
  config.clip = 0.25;
  config.slices =
      ql::train::choose_slices(shape.batch, shape.network.lengths.segment, at::get_num_threads());
  config.passes = 1;
  config.precision = shape.precision;
  return config;
}

// A network in training on random tokens.
class Training {
 public:
  Training(const Shape& shape, const std::filesystem::path& folder)
      : shape_(shape),
        reader_(pack(shape, folder)),
        config_(make_config(shape)),
        streams_(reader_, shape.batch, shape.network.lengths.segment),
        learner_(shape.network, config_) {}

  void step() { learner_.step(streams_, step_++, config_.learning_rate); }
  const Shape& shape() const { return shape_; }
  std::int64_t data_bytes() { return shape_.batch * reader_.frame_bytes(); }
  std::int64_t tokens() const { return shape_.batch * shape_.network.lengths.segment; }
  double flops() const {
    return static_cast<double>(tokens()) *
           ql::net::cost(shape_.network, shape_.network.lengths).training_flops_per_token;
  }

 private:
  static std::vector<std::string> pack(const Shape& shape, const std::filesystem::path& folder) {
    ql::shard::StreamHeader header;
    header.vocabulary.size = shape.network.vocab_size;
    ql::shard::PackWriter writer(folder, header, {});
    const at::Tensor ids = at::randint(shape.network.vocab_size, {1 << 20}, at::kInt);
    writer.begin_document();
    writer.write(reinterpret_cast<const ql::shard::TokenId*>(ids.data_ptr<std::int32_t>()),
                 static_cast<std::size_t>(ids.numel()));
    writer.finish(std::nullopt);
    return {folder.string()};
  }

  Shape shape_;
  ql::shard::MultiReader reader_;
  ql::train::TrainingConfig config_;
  ql::train::Streams streams_;
  ql::train::TrainedNetwork learner_;
  std::int64_t step_ = 0;
};

// Returns the memory of a training, without its data.
double predicted_mebibytes(const Shape& shape, int threads) {
  const ql::train::TrainingConfig config = make_config(shape);
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  const auto memory = ql::train::MemoryTrial(shape.network, config, threads, kNoLimit)
                          .step(config.slices, config.passes);
  ql::machine::return_freed_memory();
  return static_cast<double>(memory->total() + ql::resident_bytes()) / kMebibyte;
}

constexpr std::int64_t kProduct = 1024;

std::string table_line(const ql::Json& json) {
  std::string line = fmt::format(
      "{:<24}{:>9.0f} tokens/s{:>8.1f} GFLOP a step{:>8.1f} GFLOP/s{:>7.1f} % of a product's "
      "{:.0f}",
      json["name"].get<std::string>(), json["tokens_per_second"].get<double>(),
      json["flops_per_step"].get<double>() / 1e9, json["gflops"].get<double>(),
      100 * json["share_of_product"].get<double>(), json["product_gflops"].get<double>());
  line += fmt::format(", {:.2f} of the first", json["against_first"].get<double>());
  if (json.contains("peak_mib")) {
    line += fmt::format(", {:.0f} MiB ({:.0f} predicted)", json["peak_mib"].get<double>(),
                        json["predicted_mib"].get<double>());
  }
  return line;
}

void run(const std::vector<Shape>& shapes, int rounds, const ql::machine::ThreadSetup& setup,
         const std::string& json_file) {
  const double predicted = predicted_mebibytes(shapes.front(), setup.threads);
  const ScratchFolder scratch;
  std::vector<std::unique_ptr<Training>> trainings;
  for (const Shape& shape : shapes) {
    const auto folder = scratch.path() / std::to_string(trainings.size());
    trainings.push_back(std::make_unique<Training>(shape, folder));
    trainings.back()->step();  // the first steps allocate memory
    trainings.back()->step();
  }
  const at::Tensor a = at::rand({kProduct, kProduct}), b = at::rand({kProduct, kProduct});
  at::Tensor product = at::empty_like(a);
  const auto multiply = [&] {
    for (int repeat = 0; repeat < 8; ++repeat) at::mm_out(product, a, b);
  };
  multiply();
  std::vector<double> products;
  std::vector<std::vector<double>> steps(trainings.size()), shares(trainings.size());
  const double product_flops = 8 * 2.0 * kProduct * kProduct * kProduct;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < trainings.size(); ++i) {
      const double before = seconds_of(multiply);
      const double step = seconds_of([&] { trainings[i]->step(); });
      const double after = seconds_of(multiply);
      products.push_back((before + after) / 2);
      steps[i].push_back(step);
      shares[i].push_back(trainings[i]->flops() / step * products.back() / product_flops);
    }
  }
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    const Training& training = *trainings[i];
    const double step = median(steps[i]);
    ql::Json json = ql::Json::object();
    json["name"] = training.shape().name;
    json["tokens_per_second"] = static_cast<double>(training.tokens()) / step;
    json["step_seconds"] = step;
    json["fastest_step_seconds"] = *std::min_element(steps[i].begin(), steps[i].end());
    json["flops_per_step"] = training.flops();
    json["gflops"] = training.flops() / step / 1e9;
    json["product_gflops"] = product_flops / median(products) / 1e9;
    json["share_of_product"] = median(shares[i]);
    json["against_first"] = median(steps.front()) / step;
    if (trainings.size() == 1) {
      json["predicted_mib"] =
          predicted + static_cast<double>(trainings[i]->data_bytes()) / kMebibyte;
      json["peak_mib"] = static_cast<double>(ql::peak_resident_bytes()) / kMebibyte;
    }
    json["threads"] = setup.threads;
    json["blas"] = setup.blas;
    std::puts(table_line(json).c_str());
    if (!json_file.empty()) std::ofstream(json_file, std::ios::app) << json.dump() << '\n';
  }
}

}  // namespace

int main(int count, char** arguments) {
  int rounds = 9, threads = 0;
  std::size_t network = 0;
  std::string group, json_file;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--rounds" && i + 1 < count) {
      rounds = std::stoi(arguments[++i]);
    } else if (argument == "--threads" && i + 1 < count) {
      threads = std::stoi(arguments[++i]);
    } else if (argument == "--json" && i + 1 < count) {
      json_file = arguments[++i];
    } else if (argument == "--network" && i + 1 < count) {
      network = static_cast<std::size_t>(std::stoi(arguments[++i]));
    } else {
      group = argument;
    }
  }
  for (auto [name, shapes] : groups()) {
    if (group.empty()) {
      std::puts(name.c_str());
    } else if (name == group) {
      if (network > 0 && network <= shapes.size()) shapes = {shapes[network - 1]};
      run(shapes, rounds, ql::machine::set_up_threads(threads), json_file);
      return 0;
    }
  }
  return group.empty() ? 0 : 2;
}
