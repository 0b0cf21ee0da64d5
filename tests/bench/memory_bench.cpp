// Compares the memory that trainings of drawn networks take with the estimate that they print.
//
// Usage: ql_bench_memory [--first N] [--count N] [--runs N] [--precision float32|bfloat16]
// Network N is the same in every run. The qltrain beside this program trains each for three steps,
// without a validation and with one; both trainings write a checkpoint. What it prints as taken is
// compared with what it prints as estimated. With two threads the allocator's arenas fill
// differently in each run, so the median of three processes counts. The exit code is 1 when a
// median is outside -3 % to +15 %.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "net/network.h"
#include "scratch_folder.h"
#include "shard/pack_writer.h"

namespace {

using ql::net::Architecture;
using ql::net::Network;

constexpr double kMebibyte = 1 << 20;
constexpr double kLowest = -0.03, kHighest = 0.15;
// Smaller trainings would mostly measure the libraries, and larger ones take long.
constexpr double kSmallest = 150 * kMebibyte, kLargest = 800 * kMebibyte;
constexpr double kMostOperations = 1.5e10;
constexpr std::int64_t kValidationTokens = 20000;

struct Drawn {
  Network network;
  std::int64_t batch = 1, slices = 1, passes = 1;
  int threads = 1;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t operator()(std::initializer_list<std::int64_t> from) {
    return from.begin()[random_() % from.size()];
  }
  template <typename Value>
  Value any() {
    return static_cast<Value>(random_() % names_of(Value()).size());
  }
  bool once_in(std::uint64_t times) { return random_() % times == 0; }

 private:
  std::mt19937_64 random_;
};

void draw_layers(Draw& draw, Network& network) {
  switch (network.architecture) {
    case Architecture::kTransformerQl:
    case Architecture::kMultiScale:
      network.scales = {draw({1, 2, 3}), draw({1, 2})};
      if (draw.once_in(3)) network.scales.push_back(1);
      network.output_layers = draw({1, 2});
      network.pool = draw.once_in(2) ? ql::net::Pool::kMax : ql::net::Pool::kMean;
      network.droppath = draw.once_in(2) ? 0.3 : 0.0;
      network.query_only_pooling = draw.once_in(4);
      break;
    case Architecture::kCompressive:
      network.scales = {draw({2, 4})};
      network.pool = draw.any<ql::net::Pool>();
      break;
    case Architecture::kTransformerXl:
    case Architecture::kVanilla:
      network.scales = {draw({1, 2, 4, 8})};
      break;
  }
}

// The family follows from the number, so that any thirty networks have all families.
Drawn draw_any(Draw& draw, std::uint64_t number) {
  constexpr Architecture kFamily[] = {Architecture::kTransformerXl, Architecture::kTransformerQl,
                                      Architecture::kCompressive,   Architecture::kTransformerQl,
                                      Architecture::kTransformerXl, Architecture::kMultiScale,
                                      Architecture::kVanilla};
  Drawn drawn;
  Network& network = drawn.network;
  network.architecture = kFamily[number % std::size(kFamily)];
  draw_layers(draw, network);
  network.d_model = draw({32, 64, 128, 256, 512});
  network.n_head = draw({2, 4, 8});
  network.d_head = std::max<std::int64_t>(8, network.d_model / network.n_head / draw({1, 1, 2}));
  network.d_inner = network.d_model * draw({2, 4});
  network.pre_lnorm = draw.once_in(2);
  network.dropout = draw.once_in(4) ? 0.0 : 0.1;
  network.dropatt = draw.once_in(2) ? 0.0 : 0.1;
  network.reset_memory_at_documents = draw.once_in(4);
  network.vocab_size = draw({1000, 5000, 20000, 70000});
  if (network.vocab_size >= 20000 && draw.once_in(2)) {
    network.cutoffs = {network.vocab_size / 20, network.vocab_size / 4};
    network.div_val = draw({1, 2, 4});
  }
  const bool memory = ql::net::keeps_memory(network.architecture);
  ql::net::Lengths& lengths = network.lengths;
  lengths.segment = draw({8, 16, 32, 64, 128, 256, 512});
  lengths.memory = memory ? lengths.segment * draw({1, 1, 2, 3}) : 0;
  if (network.architecture == Architecture::kCompressive) {
    lengths.compressed_memory = lengths.segment * draw({1, 2});
  }
  drawn.batch = std::max<std::int64_t>(2, draw({2048, 4096, 8192}) / lengths.segment);
  drawn.slices = draw({2, 2, 2, 1, 4});
  drawn.passes = draw({1, 1, 1, 2, 3});
  drawn.threads = static_cast<int>(draw({1, 2}));
  return drawn;
}

// A rough size. The estimate itself must not decide which networks are tried.
double size_of(const Drawn& drawn) {
  const Network& network = drawn.network;
  double elements = 0;
  for (const ql::net::Stage& stage : ql::net::make_geometry(network, network.lengths).stages) {
    if (!stage.feeds_layer()) continue;
    const std::int64_t of_state = 8 * network.d_model + network.d_inner;
    elements += static_cast<double>(stage.segment * of_state) +
                static_cast<double>(stage.window() * 3 * network.d_model) +
                ql::net::attention_cost(network, stage).kept_scores;
  }
  const auto passes = static_cast<double>(drawn.slices * drawn.passes);
  const auto running = static_cast<double>(std::min<std::int64_t>(drawn.slices, drawn.threads));
  const auto parameters = static_cast<double>(ql::net::cost(network, network.lengths).parameters);
  return 4 * (elements * static_cast<double>(drawn.batch) * running / passes +
              parameters * static_cast<double>(3 + drawn.slices));
}

Drawn draw_network(std::uint64_t number) {
  Draw draw(number);
  for (;;) {
    const Drawn drawn = draw_any(draw, number);
    try {
      drawn.network.check();
      const ql::net::Cost cost = ql::net::cost(drawn.network, drawn.network.lengths);
      const double operations = cost.training_flops_per_token *
                                static_cast<double>(drawn.batch * drawn.network.lengths.segment);
      const double bytes = size_of(drawn);
      if (operations < kMostOperations && bytes > kSmallest && bytes < kLargest) return drawn;
    } catch (const ql::Error&) {
      // The lengths do not fit the network. The next draw may fit.
    }
  }
}

std::string name_of(const Drawn& drawn) {
  const Network& network = drawn.network;
  std::string scales;
  for (const std::int64_t layers : network.scales) scales += fmt::format(",{}", layers);
  return fmt::format(
      "{} {}+{} d {} h {} inner {} {} drop {}/{} {}{} V {}{} lengths {}/{}/{} batch {} in {}x{} "
      "threads {}{}",
      to_short_text(network.architecture), scales.substr(1), network.output_layers, network.d_model,
      network.n_head * network.d_head, network.d_inner, network.pre_lnorm ? "pre" : "post",
      network.dropout, network.dropatt, to_text(network.pool),
      network.query_only_pooling ? " queries" : "", network.vocab_size,
      network.cutoffs.empty() ? "" : fmt::format(" div {}", network.div_val),
      network.lengths.segment, network.lengths.memory, network.lengths.compressed_memory,
      drawn.batch, drawn.slices, drawn.passes, drawn.threads,
      network.reset_memory_at_documents ? " resets" : "");
}

// Packs ids that are distributed like words: id n is drawn about as often as 1 / (n + 1).
std::filesystem::path pack(const std::filesystem::path& folder, std::int64_t vocabulary,
                           std::int64_t tokens) {
  ql::shard::StreamHeader header;
  header.vocabulary.size = vocabulary;
  ql::shard::PackWriter writer(folder, header, {});
  std::mt19937_64 random(1);
  std::vector<ql::shard::TokenId> ids;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    const double id = std::pow(static_cast<double>(vocabulary), uniform) - 1;
    ids.push_back(static_cast<ql::shard::TokenId>(
        std::min<std::int64_t>(static_cast<std::int64_t>(id), vocabulary - 1)));
  }
  for (std::size_t first = 0; first < ids.size(); first += 1000) {
    writer.begin_document();
    writer.write(ids.data() + first, std::min<std::size_t>(1000, ids.size() - first));
  }
  writer.finish(std::nullopt);
  return folder;
}

struct Figures {
  double said = 0, taken = 0;  // MiB
};

// Reads the bytes from a line of qltrain, such as "qltrain: peak memory: 511.6 MiB".
void read_bytes(const std::string& line, const std::string& name, double& mebibytes) {
  const std::size_t at = line.find(name);
  if (at == std::string::npos) return;
  char unit = 0;
  std::sscanf(line.c_str() + at + name.size(), "%lf %c", &mebibytes, &unit);
  if (unit == 'G') mebibytes *= 1024;
}

// Runs qltrain for three steps. Returns nothing when that failed; qltrain has reported why.
std::optional<Figures> measure(const Drawn& drawn, bool validates, const std::string& precision) {
  const ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
  const std::int64_t of_step = drawn.batch * (drawn.network.lengths.segment + 1);
  pack(folder / "train", drawn.network.vocab_size, 8 * of_step);
  pack(folder / "valid", drawn.network.vocab_size, kValidationTokens);
  const ql::Json preset = {{"format", "ql-preset"},
                           {"version", 1},
                           {"about", name_of(drawn)},
                           {"network", ql::net::network_to_json(drawn.network)},
                           {"training",
                            {{"batch", drawn.batch},
                             {"steps", 1000},
                             {"learning_rate", 1e-4},
                             {"slices", drawn.slices},
                             {"passes", drawn.passes},
                             {"eval_interval", validates ? 2 : 1000}}}};
  std::ofstream(folder / "preset.json") << preset;
  const std::string command = fmt::format(
      "{0}/qltrain --data {1}/train --valid {1}/valid -m {1}/preset.json -o {1}/run --stop-at 3 "
      "--threads {2} --precision {3} 2>&1",
      std::filesystem::read_symlink("/proc/self/exe").parent_path().string(), folder.string(),
      drawn.threads, precision);
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  Figures figures;
  std::string said;
  for (char line[4096]; std::fgets(line, sizeof line, pipe) != nullptr; said += line) {
    read_bytes(line, "memory estimated: ", figures.said);
    read_bytes(line, "peak memory: ", figures.taken);
  }
  if (::pclose(pipe) == 0 && figures.said > 0 && figures.taken > 0) return figures;
  std::fputs(said.c_str(), stderr);
  return std::nullopt;
}

// Returns the process whose memory is the median of `runs` processes.
std::optional<Figures> measure_median(const Drawn& drawn, bool validates,
                                      const std::string& precision, int runs) {
  std::vector<Figures> all;
  for (int run = 0; run < runs; ++run) {
    const std::optional<Figures> figures = measure(drawn, validates, precision);
    if (!figures) return std::nullopt;
    all.push_back(*figures);
  }
  const auto median = all.begin() + runs / 2;
  std::nth_element(all.begin(), median, all.end(),
                   [](const Figures& a, const Figures& b) { return a.taken < b.taken; });
  return *median;
}

}  // namespace

int main(int count, char** arguments) {
  std::uint64_t first = 1, networks = 30;
  int runs = 3;
  std::string precision = "float32";
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    if (name == "--first") first = std::stoull(value);
    if (name == "--count") networks = std::stoull(value);
    if (name == "--runs") runs = std::max(1, std::stoi(value));
    if (name == "--precision") precision = value;
  }
  int outside = 0;
  for (std::uint64_t number = first; number < first + networks; ++number) {
    const Drawn drawn = draw_network(number);
    std::string line = fmt::format("{:>3}", number);
    for (const bool with : {false, true}) {
      const std::optional<Figures> figures = measure_median(drawn, with, precision, runs);
      if (!figures) return 2;
      const double error = figures->said / figures->taken - 1;
      outside += error < kLowest || error > kHighest ? 1 : 0;
      line +=
          fmt::format("{:>7.0f} {:>5.0f} {:>+6.1f} %", figures->said, figures->taken, 100 * error);
    }
    std::puts((line + "  " + name_of(drawn)).c_str());
    std::fflush(stdout);
  }
  std::printf("%d of %d outside %+.0f to %+.0f %%\n", outside, static_cast<int>(2 * networks),
              100 * kLowest, 100 * kHighest);
  return outside == 0 ? 0 : 1;
}
