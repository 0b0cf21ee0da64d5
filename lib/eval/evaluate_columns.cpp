#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "base/signals.h"
#include "eval/columns.h"
#include "eval/evaluation_methods.h"
#include "eval/losses.h"
#include "eval/token_check.h"
#include "shard/document_age.h"

namespace ql::eval {
namespace {

// Consecutive targets of one column in one step.
struct Run {
  std::int64_t row = 0;       // of the step's states, flattened to [batch * segment, d_model]
  std::int64_t position = 0;  // of the first target token in the stream
  std::int64_t count = 0;
};

class Reader {
 public:
  Reader(const TokenSource& source, const ColumnPlan& plan, std::int64_t segment,
         const net::Network& network)
      : source_(source),
        plan_(plan),
        segment_(segment),
        network_(network),
        window_(static_cast<std::size_t>(segment) + 1) {
    const auto shape = {static_cast<std::int64_t>(plan.columns.size()), segment};
    tokens = at::zeros(shape, at::kLong);
    targets = at::zeros(shape, at::kLong);
  }

  // Fills tokens, targets, ages and runs for this step of every column. What lies behind the end of
  // the stream or of a column stays 0: it is causal, so nothing that is scored sees it.
  void read(std::int64_t step) {
    tokens.zero_();
    targets.zero_();
    ages.assign(network_.reset_memory_at_documents ? plan_.columns.size() : 0, 0);
    runs.clear();
    for (std::size_t k = 0; k < plan_.columns.size(); ++k) {
      const Column& column = plan_.columns[k];
      if (column.read_from + step < column.end) {
        read_column(k, column.read_from + step, column.read_from + step >= column.score_from);
      }
    }
  }

  at::Tensor tokens, targets;      // [batch, segment]
  std::vector<std::int64_t> ages;  // of StepOptions
  std::vector<Run> runs;           // what is scored in this step, rows ascending

 private:
  void read_column(std::size_t column, std::int64_t segment_index, bool scored) {
    const std::int64_t begin = segment_index * segment_;
    const std::int64_t count = std::min(segment_, source_.tokens - 1 - begin);
    source_.read(begin, count + 1, window_.data(), column);
    check_ids(source_, begin, window_.data(), count + 1, network_.vocab_size);
    const std::int64_t row = static_cast<std::int64_t>(column) * segment_;
    std::copy_n(window_.data(), count, tokens.data_ptr<std::int64_t>() + row);
    std::copy_n(window_.data() + 1, count, targets.data_ptr<std::int64_t>() + row);
    if (network_.reset_memory_at_documents) {
      ages[column] = shard::document_age(source_.document_starts(), begin);
    }
    if (scored) {
      runs.push_back({row, begin + 1, count});
    }
  }

  const TokenSource& source_;
  const ColumnPlan& plan_;
  std::int64_t segment_;
  const net::Network& network_;
  std::vector<std::int64_t> window_;
};

// Losses of the scored rows only, in the order of the runs: float64 [rows] on the CPU.
at::Tensor scored_losses(const nn::Model& model, const at::Tensor& states,
                         const at::Tensor& targets, const std::vector<Run>& runs) {
  std::vector<at::Tensor> kept_states, kept_targets;
  for (const Run& run : runs) {
    kept_states.push_back(states.narrow(0, run.row, run.count));
    kept_targets.push_back(targets.narrow(0, run.row, run.count));
  }
  return losses_in_blocks(model, at::cat(kept_states), at::cat(kept_targets));
}

}  // namespace

Evaluation evaluate_columns(const nn::Model& model, const TokenSource& source,
                            const net::Geometry& geometry, const EvaluationOptions& options) {
  const std::int64_t segment = options.lengths.segment;
  const std::int64_t segments = (source.tokens - 2) / segment + 1;
  const ColumnPlan plan = plan_columns(segments, warm_up_segments(geometry), options.batch);
  Reader reader(source, plan, segment, model.network());
  Evaluation result;
  result.batch = static_cast<std::int64_t>(plan.columns.size());
  for (const Column& column : plan.columns) {
    result.warm_up += (column.score_from - column.read_from) * segment;
  }

  const at::NoGradGuard no_gradient;
  const auto device = model.options().device();
  nn::Memory memory = model.start_memory(geometry, result.batch);
  for (std::int64_t step = 0; step < plan.steps; ++step) {
    check_for_stop();
    reader.read(step);
    nn::StepOptions step_options;
    step_options.ages = reader.ages;
    const at::Tensor states =
        model.forward(geometry, reader.tokens.to(device), memory, step_options);
    if (!reader.runs.empty()) {
      const at::Tensor losses = scored_losses(model, states.flatten(0, 1),
                                              reader.targets.to(device).flatten(), reader.runs);
      const double* values = losses.data_ptr<double>();
      for (const Run& run : reader.runs) {
        const std::int64_t* ids = reader.targets.data_ptr<std::int64_t>() + run.row;
        add_losses(run.position, ids, values, run.count, options, result);
        values += run.count;
      }
    }
    if (options.progress) {
      options.progress(result.targets);
    }
  }
  return result;
}

}  // namespace ql::eval
