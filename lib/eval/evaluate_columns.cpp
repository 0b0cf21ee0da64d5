#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "base/signals.h"
#include "eval/chunk_size.h"
#include "eval/columns.h"
#include "eval/evaluation_methods.h"
#include "eval/losses.h"
#include "eval/token_check.h"
#include "kernels/softmax.h"
#include "machine/device.h"
#include "machine/pieces.h"
#include "shard/document_age.h"

namespace ql::eval {
namespace {

// Consecutive targets of one column in one step, from the first token of its segment on.
struct Run {
  std::int64_t column = 0;
  std::int64_t position = 0;  // of the first target token in the stream
  std::int64_t count = 0;
};

class Reader {
 public:
  Reader(const TokenSource& source, const ColumnPlan& plan, std::int64_t segment,
         const net::Network& network)
      : ids(at::zeros({static_cast<std::int64_t>(plan.columns.size()), segment + 1}, at::kLong)),
        source_(source),
        plan_(plan),
        segment_(segment),
        network_(network) {}

  // Fills ids, ages and runs for this step of every column. The ids behind the end of the stream or
  // of a column do not matter: the network is causal, so nothing that is scored sees them.
  void read(std::int64_t step) {
    ids.zero_();
    ages.assign(network_.reset_memory_at_documents ? plan_.columns.size() : 0, 0);
    runs.clear();
    for (std::size_t k = 0; k < plan_.columns.size(); ++k) {
      const Column& column = plan_.columns[k];
      if (column.read_from + step < column.end) {
        read_column(k, column.read_from + step, column.read_from + step >= column.score_from);
      }
    }
  }

  at::Tensor ids;                  // [columns, segment + 1]: each token's target is behind it
  std::vector<std::int64_t> ages;  // of StepOptions
  std::vector<Run> runs;           // the targets that this step scores, columns ascending

 private:
  void read_column(std::size_t column, std::int64_t segment_index, bool scored) {
    const std::int64_t begin = segment_index * segment_;
    const std::int64_t count = std::min(segment_, source_.tokens - 1 - begin);
    const auto row = static_cast<std::int64_t>(column);
    auto* row_ids = ids.select(0, row).data_ptr<std::int64_t>();
    source_.read(begin, count + 1, row_ids, column);
    check_ids(source_.name, begin, row_ids, count + 1, network_.vocab_size);
    if (network_.reset_memory_at_documents) {
      ages[column] = shard::document_age(source_.document_starts(), begin);
    }
    if (scored) runs.push_back({row, begin + 1, count});
  }

  const TokenSource& source_;
  const ColumnPlan& plan_;
  std::int64_t segment_;
  const net::Network& network_;
};

// Columns [first, first + count), which go through the network together.
struct Group {
  std::int64_t first = 0, count = 0;
  nn::Memory memory;
  at::Tensor states;  // [count, segment, d_model] of the step
};

// Groups are pieces of a step (machine/pieces.h). A GPU has one.
std::vector<Group> make_groups(const nn::ModelAtLengths& model, std::int64_t columns) {
  const bool pieces = machine::uses_kernels(model.model().parameters().front().tensor);
  const std::int64_t count = pieces ? groups_of_columns(model.geometry(), columns) : 1;
  std::vector<Group> groups;
  for (std::int64_t group = 0; group < count; ++group) {
    const std::int64_t first = columns * group / count;
    const std::int64_t size = columns * (group + 1) / count - first;
    groups.push_back({first, size, model.start_memory(size), {}});
  }
  return groups;
}

// Takes the group's columns through this step.
void run_group(const nn::ModelAtLengths& model, const Reader& reader, Group& group) {
  const std::int64_t segment = model.geometry().lengths.segment;
  nn::StepOptions options;
  if (!reader.ages.empty()) {
    const auto first = reader.ages.begin() + group.first;
    options.ages.assign(first, first + group.count);
  }
  const at::Tensor ids = reader.ids.narrow(0, group.first, group.count).narrow(1, 0, segment);
  group.states = model.forward(ids, group.memory, options);
}

// States and targets whose losses are not known yet. A softmax reads all of its weights however few
// its rows are, so it waits for the rows of several steps.
class Unscored {
 public:
  void add(const Reader& reader, const std::vector<Group>& groups) {
    auto group = groups.begin();
    for (const Run& run : reader.runs) {
      while (run.column >= group->first + group->count) ++group;
      runs_.push_back(run);
      // Copies: a view would keep the states of all columns, and the reader's ids change.
      states_.push_back(
          group->states.select(0, run.column - group->first).narrow(0, 0, run.count).clone());
      targets_.push_back(reader.ids.select(0, run.column).narrow(0, 1, run.count).clone());
      rows_ += run.count;
    }
  }

  bool enough() const { return rows_ >= kernels::kFewSoftmaxRows; }

  // Hands over the losses in the order of steps.
  void score(const nn::Model& model, const EvaluationOptions& options, Evaluation& result) {
    if (rows_ == 0) return;
    const at::Tensor states = at::cat(states_), targets = at::cat(targets_);
    // All threads work on so many rows, and one on each so many of more.
    std::vector<at::Tensor> blocks;
    for (std::int64_t first = 0; first < rows_; first += kernels::kFewSoftmaxRows) {
      const std::int64_t count = std::min(kernels::kFewSoftmaxRows, rows_ - first);
      blocks.push_back(
          losses_in_blocks(model, states.narrow(0, first, count), targets.narrow(0, first, count)));
    }
    const at::Tensor losses = at::cat(blocks);
    std::int64_t done = 0;
    for (const Run& run : runs_) {
      add_losses({run.position, targets.data_ptr<std::int64_t>() + done,
                  losses.data_ptr<double>() + done, run.count},
                 options, result);
      done += run.count;
    }
    *this = Unscored();
  }

 private:
  std::vector<Run> runs_;
  std::vector<at::Tensor> states_, targets_;  // one a run: [count, d_model] and [count]
  std::int64_t rows_ = 0;
};

}  // namespace

Evaluation evaluate_columns(const nn::ModelAtLengths& model, const TokenSource& source,
                            const EvaluationOptions& options) {
  const std::int64_t segment = model.geometry().lengths.segment;
  const std::int64_t segments = (source.tokens - 2) / segment + 1;
  const ColumnPlan plan = plan_columns(segments, warm_up_segments(model.geometry()), options.batch);
  Reader reader(source, plan, segment, model.model().network());
  Evaluation result;
  result.batch = static_cast<std::int64_t>(plan.columns.size());
  for (const Column& column : plan.columns) {
    result.warm_up += (column.score_from - column.read_from) * segment;
  }

  const at::NoGradGuard no_gradient;
  std::vector<Group> groups = make_groups(model, result.batch);
  Unscored unscored;
  const auto group_count = static_cast<std::int64_t>(groups.size());
  const auto run = [&](std::int64_t group, std::int64_t) {
    run_group(model, reader, groups[static_cast<std::size_t>(group)]);
  };
  for (std::int64_t step = 0; step < plan.steps; ++step) {
    check_for_stop();
    reader.read(step);
    if (group_count > 1) {
      machine::for_pieces(group_count, 1, run);
    } else {
      run(0, 1);  // on all threads, or on the GPU
    }
    unscored.add(reader, groups);
    if (unscored.enough() || step + 1 == plan.steps) {
      unscored.score(model.model(), options, result);
    }
    if (options.progress) options.progress(result.targets);
  }
  return result;
}

}  // namespace ql::eval
