// Chooses how many segments go through a layer at once, estimates memory, and evaluates a stream in
// parts that are read in parallel (columns).

#include "eval/stream_columns.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/process.h"
#include "base/resources.h"
#include "eval/evaluate.h"
#include "eval/losses.h"
#include "kernels/softmax.h"
#include "machine/device.h"
#include "machine/threads.h"
#include "net/context.h"
#include "net/cost.h"
#include "shard/document_starts.h"

namespace ql::eval {

namespace {

constexpr double kMostBytes = 128.0 * (1 << 20);
constexpr double kShareOfAvailable = 1.0 / 8;
constexpr double kDeviceBytes = 1024.0 * (1 << 20);

// Returns the system's available memory, rounded down to a power of two. So a second run usually
// reads the same number of segments at once. Another number could change the last digits of the
// results.
double steadily_available_bytes() {
  const std::int64_t available = available_bytes();
  return available == 0 ? kMostBytes / kShareOfAvailable
                        : std::exp2(std::floor(std::log2(static_cast<double>(available))));
}

// LayerwiseStep (nn/step.h) takes this many states per thread through a layer at a time. A longer
// segment is not divided, but this estimate ignores that.
constexpr double kStatesOfPiece = 512;
constexpr double kFloat = 4;

struct LayerSize {
  LayerSize(const net::Network& network, const net::Stage& stage) {
    const net::Network of_stage = network.of_scale(stage.scale);
    d_model = static_cast<double>(of_stage.d_model);
    d_heads = static_cast<double>(of_stage.n_head * of_stage.d_head);
    d_inner = static_cast<double>(of_stage.d_inner);
  }

  // Several segments go through a layer together. Returns the number of elements that `stage` needs
  // for each of these segments. If the stage feeds a layer, it needs the states before and after
  // the layer, the keys and the values. Otherwise it needs its states and, if it has a memory, a
  // window.
  double of_chunk(const net::Network& network, const net::Stage& stage) const {
    const auto segment = static_cast<double>(stage.segment);
    const auto keys = static_cast<double>(stage.segment_keys());
    const auto memory = static_cast<double>(stage.memory + stage.compressed_memory);
    if (!stage.feeds_layer()) {
      return (stage.memory > 0 ? memory + 2 * segment : segment) * d_model;
    }
    double keys_values = keys;
    // In these cases the keys and values of states that enter the memory are held a second time
    // (LayerwiseStep::layer() in nn/step.cpp).
    if (stage.memory > 0 && (stage.keys_per_state > 1 || stage.new_states < stage.segment)) {
      keys_values += static_cast<double>(stage.new_states);
    }
    double states = 2 * segment;
    if (stage.compressed_memory > 0) {
      const double compressed = segment / static_cast<double>(network.rate);
      states += static_cast<double>(stage.memory) + segment + compressed;
      keys_values += 2 * compressed;
    }
    // To reset a memory at documents, some of its keys and values are replaced. So each segment has
    // its own copy of the keys and values of its memory.
    if (network.reset_memory_at_documents) keys_values += memory;
    return states * d_model + 2 * keys_values * d_heads;
  }

  // Returns the number of elements that one state needs inside the layer: normalized states,
  // queries, sums, inner states and results.
  double of_state() const { return 4 * d_model + 2 * d_heads + d_inner; }

  double d_model = 0, d_heads = 0, d_inner = 0;
};

// Returns the number of groups into which the columns are divided. On the CPU a group is a piece of
// work (machine/threads.h).
std::int64_t groups_of_columns(const net::Geometry& geometry, std::int64_t columns) {
  // With fewer tokens in a group, packing the operands of a matrix product costs as much as the
  // product itself. Two columns still make two groups, so that two threads have work.
  constexpr std::int64_t kFewestTokens = 128, kFewestGroups = 2;
  return std::min(columns,
                  std::max(kFewestGroups, columns * geometry.lengths.segment / kFewestTokens));
}

}  // namespace

double bytes_per_segment(const net::Network& network, const net::Geometry& geometry) {
  double numbers = 0;
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    const LayerSize layer(network, stage);
    const auto segment = static_cast<double>(stage.segment);
    const auto window = static_cast<double>(stage.window());
    // With a reset at documents, keys and values are held twice: as computed, and with the keys and
    // values of other documents replaced.
    const double keys_values = (network.reset_memory_at_documents ? 4 : 2) * window * layer.d_heads;
    const double attention = keys_values + net::attention_cost(network, stage).held +
                             3 * static_cast<double>(stage.segment_keys()) * layer.d_heads;
    const double feed_forward = 2 * segment * layer.d_inner;
    numbers = std::max(numbers, std::max(attention, feed_forward) + window * layer.d_model +
                                    6 * segment * layer.d_model);
  }
  // The up-sampled states of every scale are held until the scales are averaged.
  const auto scales = static_cast<double>(geometry.outputs.size());
  return 4 * (numbers + scales * static_cast<double>(geometry.lengths.segment) *
                            static_cast<double>(network.d_model));
}

std::int64_t automatic_segments(const net::Network& network, const net::Geometry& geometry,
                                const c10::Device& device) {
  const double bytes = device.is_cpu()
                           ? std::min(kMostBytes, kShareOfAvailable * steadily_available_bytes())
                           : kDeviceBytes;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(bytes / bytes_per_segment(network, geometry)));
}

std::int64_t chunk_bytes(const net::Network& network, const net::Geometry& geometry,
                         std::int64_t tokens, int threads) {
  const std::int64_t segment = geometry.lengths.segment;
  const std::int64_t segments =
      std::min((tokens + segment - 1) / segment, automatic_segments(network, geometry, c10::kCPU));
  double numbers = 0, of_pieces = 0;
  for (const net::Stage& stage : geometry.stages) {
    const LayerSize layer(network, stage);
    numbers = std::max(numbers, layer.of_chunk(network, stage));
    of_pieces = std::max(of_pieces, layer.of_state());
  }
  // First the embedded tokens are held, and later the up-sampled states of every scale, until the
  // scales are averaged.
  const auto scales = static_cast<double>(geometry.outputs.size());
  numbers += scales * static_cast<double>(segment * network.d_model);
  const double states_of_pieces = std::min(static_cast<double>(threads) * kStatesOfPiece,
                                           static_cast<double>(segments * segment));
  return static_cast<std::int64_t>(
      kFloat * (static_cast<double>(segments) * numbers + states_of_pieces * of_pieces));
}

std::int64_t columns_bytes(const net::Network& network, const net::Geometry& geometry,
                           std::int64_t columns, int threads, std::int64_t cursor_bytes) {
  const std::int64_t groups = groups_of_columns(geometry, columns);
  // While a group runs, its columns hold new memories in addition to the old ones.
  const std::int64_t running =
      std::min<std::int64_t>(groups, threads) * ((columns + groups - 1) / groups);
  const auto tokens = static_cast<double>(geometry.lengths.segment * network.d_model);
  double windows = 0, layers = 0;
  for (const net::Stage& stage : geometry.stages) {
    const LayerSize layer(network, stage);
    // A memory is a view that keeps its former window allocated.
    const auto states = static_cast<double>(stage.memory > 0 ? stage.memory + stage.segment : 0);
    const auto window = static_cast<double>(stage.window());
    windows += (states + static_cast<double>(2 * stage.compressed_memory)) * layer.d_model;
    double attention = window * (2 * layer.d_model + 2 * layer.d_heads);
    if (network.attention == net::Attention::kLinear && stage.feeds_layer()) {
      attention += net::attention_cost(network, stage).held;
    }
    layers = std::max(layers, attention + static_cast<double>(stage.segment) * layer.of_state());
  }
  layers += static_cast<double>(geometry.outputs.size()) * tokens;
  // The states of all columns are held until their losses are computed.
  const double numbers = static_cast<double>(columns) * (windows + 2 * tokens) +
                         static_cast<double>(running) * (windows + layers);
  return static_cast<std::int64_t>(kFloat * numbers) + columns * cursor_bytes;
}

std::int64_t columns_that_fit(const net::Network& network, const net::Geometry& geometry,
                              std::int64_t columns, int threads, std::int64_t cursor_bytes,
                              std::int64_t available) {
  std::int64_t least = 1;
  for (std::int64_t most = columns; least < most;) {
    const std::int64_t middle = least + (most - least + 1) / 2;
    if (columns_bytes(network, geometry, middle, threads, cursor_bytes) <= available) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

// The rest of this file cuts a stream into columns (parts that are read in parallel) and scores
// them.

static std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

std::int64_t warm_up_segments(const net::Geometry& geometry) {
  if (geometry.keeps_most_used()) return kWholeStream;
  const std::vector<std::int64_t> oldest = net::oldest_dependencies(geometry);
  const std::int64_t tokens = -*std::min_element(oldest.begin(), oldest.end());
  return tokens > 0 ? divide_up(tokens, geometry.lengths.segment) : 0;
}

std::vector<Column> plan_columns(std::int64_t segments, std::int64_t warm_up, std::int64_t batch) {
  if (segments < 1 || warm_up < 0 || batch < 1) {
    throw std::logic_error("plan_columns: a negative length, an empty stream or no column");
  }
  // With B columns of equal length T the stream has T + (B - 1) (T - warm_up) segments. If B > 1, T
  // exceeds warm_up, so that every column except the first reads a complete warm-up.
  const std::int64_t length =
      segments <= warm_up ? segments : warm_up + divide_up(segments - warm_up, batch);
  std::vector<Column> columns{{0, 0, length}};
  while (columns.back().end < segments) {
    const std::int64_t start = columns.back().end;
    columns.push_back({start - warm_up, start, std::min(segments, start - warm_up + length)});
  }
  return columns;
}

namespace {

// Describes the targets of one segment, beginning with the target of the segment's first token.
// `column` is the index of the part of the stream (Column) to which the segment belongs.
struct TokenRun {
  std::int64_t column = 0;
  std::int64_t position = 0;  // of the first target, in the stream
  std::int64_t count = 0;
};

class Reader {
 public:
  Reader(const TokenSource& source, const std::vector<Column>& columns, std::int64_t segment,
         const net::Network& network)
      : ids(at::zeros({static_cast<std::int64_t>(columns.size()), segment + 1}, at::kLong)),
        source_(source),
        columns_(columns),
        segment_(segment),
        network_(network) {}

  // Fills ids, document_offsets and runs for this step of every column. The ids after the end of
  // the stream or of a column do not matter: the network is causal, so nothing that is scored sees
  // them.
  void read(std::int64_t step) {
    ids.zero_();
    document_offsets.assign(network_.reset_memory_at_documents ? columns_.size() : 0, 0);
    runs.clear();
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      const Column& column = columns_[k];
      const std::int64_t index = column.read_from + step, begin = index * segment_;
      if (index >= column.end) continue;
      const std::int64_t count = std::min(segment_, source_.tokens - 1 - begin);
      const auto row = static_cast<std::int64_t>(k);
      auto* row_ids = ids.select(0, row).data_ptr<std::int64_t>();
      source_.read(begin, count + 1, row_ids, k);
      check_ids(source_.name, begin, row_ids, count + 1, network_.vocab_size);
      if (network_.reset_memory_at_documents) {
        document_offsets[k] = shard::document_age(source_.document_starts(), begin);
      }
      if (index >= column.score_from) runs.push_back({row, begin + 1, count});
    }
  }

  at::Tensor ids;  // [columns, segment + 1]: each token is followed by its target
  std::vector<std::int64_t> document_offsets;  // as in nn::StepOptions
  std::vector<TokenRun> runs;  // the targets that this step scores, by ascending column

 private:
  const TokenSource& source_;
  const std::vector<Column>& columns_;
  std::int64_t segment_;
  const net::Network& network_;
};

// Holds columns [first, first + count), which go through the network together.
struct ColumnGroup {
  std::int64_t first = 0, count = 0;
  nn::Memory memory;
  at::Tensor states;  // [count, segment, d_model] of the current step
};

// Divides the parallel columns of a stream into groups. On the CPU each group is a piece of the
// work of a step (machine/threads.h). A GPU has one group.
std::vector<ColumnGroup> make_groups(const nn::ModelAtLengths& model, std::int64_t columns) {
  const bool pieces = machine::uses_kernels(model.model().parameters().front().tensor);
  const std::int64_t count = pieces ? groups_of_columns(model.geometry(), columns) : 1;
  std::vector<ColumnGroup> groups;
  for (std::int64_t group = 0; group < count; ++group) {
    const std::int64_t first = columns * group / count;
    const std::int64_t size = columns * (group + 1) / count - first;
    groups.push_back({first, size, model.start_memory(size), {}});
  }
  return groups;
}

// Computes the current step of the group's columns.
void run_group(const nn::ModelAtLengths& model, const Reader& reader, ColumnGroup& group) {
  const std::int64_t segment = model.geometry().lengths.segment;
  nn::StepOptions options;
  if (!reader.document_offsets.empty()) {
    const auto first = reader.document_offsets.begin() + group.first;
    options.document_offsets.assign(first, first + group.count);
  }
  const at::Tensor ids = reader.ids.narrow(0, group.first, group.count).narrow(1, 0, segment);
  group.states = model.forward(ids, group.memory, options);
}

// Collects states and targets whose losses are still pending. A softmax reads all of its weights,
// even for a few rows, so the rows of several steps are collected for it.
class Unscored {
 public:
  void add(const Reader& reader, const std::vector<ColumnGroup>& groups) {
    auto group = groups.begin();
    for (const TokenRun& run : reader.runs) {
      while (run.column >= group->first + group->count) ++group;
      runs_.push_back(run);
      // These are copies, because a view would keep the states of all columns allocated, and the
      // reader's ids change.
      states_.push_back(
          group->states.select(0, run.column - group->first).narrow(0, 0, run.count).clone());
      targets_.push_back(reader.ids.select(0, run.column).narrow(0, 1, run.count).clone());
      rows_ += run.count;
    }
  }

  bool enough() const { return rows_ >= kernels::kFewSoftmaxRows; }

  // Computes the pending losses and adds them (add_losses()) in the order of steps.
  void score(const nn::Model& model, const EvaluationOptions& options, Evaluation& result) {
    if (rows_ == 0) return;
    const at::Tensor states = at::cat(states_), targets = at::cat(targets_);
    // All threads work together on one block of up to kFewSoftmaxRows rows (kernels/softmax.h).
    std::vector<at::Tensor> blocks;
    for (std::int64_t first = 0; first < rows_; first += kernels::kFewSoftmaxRows) {
      const std::int64_t count = std::min(kernels::kFewSoftmaxRows, rows_ - first);
      blocks.push_back(
          losses_in_blocks(model, states.narrow(0, first, count), targets.narrow(0, first, count)));
    }
    const at::Tensor losses = at::cat(blocks);
    std::int64_t done = 0;
    for (const TokenRun& run : runs_) {
      add_losses({run.position, targets.data_ptr<std::int64_t>() + done,
                  losses.data_ptr<double>() + done, run.count},
                 options, result);
      done += run.count;
    }
    *this = Unscored();
  }

 private:
  std::vector<TokenRun> runs_;
  std::vector<at::Tensor> states_, targets_;  // one per run: [count, d_model] and [count]
  std::int64_t rows_ = 0;
};

}  // namespace

Evaluation evaluate_columns(const nn::ModelAtLengths& model, const TokenSource& source,
                            const EvaluationOptions& options) {
  const std::int64_t segment = model.geometry().lengths.segment;
  const std::int64_t segments = (source.tokens - 2) / segment + 1;
  const std::vector<Column> columns =
      plan_columns(segments, warm_up_segments(model.geometry()), options.batch);
  Reader reader(source, columns, segment, model.model().network());
  Evaluation result;
  result.batch = static_cast<std::int64_t>(columns.size());
  for (const Column& column : columns) {
    result.warm_up += (column.score_from - column.read_from) * segment;
  }

  const at::NoGradGuard no_gradient;
  std::vector<ColumnGroup> groups = make_groups(model, result.batch);
  Unscored unscored;
  const auto group_count = static_cast<std::int64_t>(groups.size());
  const auto run = [&](std::int64_t group, std::int64_t) {
    run_group(model, reader, groups[static_cast<std::size_t>(group)]);
  };
  const std::int64_t steps = columns.front().end;  // no column reads more segments
  for (std::int64_t step = 0; step < steps; ++step) {
    check_for_stop();
    reader.read(step);
    if (group_count > 1) {
      machine::for_pieces(group_count, 1, run);
    } else {
      run(0, 1);  // on all threads, or on the GPU
    }
    unscored.add(reader, groups);
    if (unscored.enough() || step + 1 == steps) {
      unscored.score(model.model(), options, result);
    }
    if (options.progress) options.progress(result.targets);
  }
  return result;
}

}  // namespace ql::eval
