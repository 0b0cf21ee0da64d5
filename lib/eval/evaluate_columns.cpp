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
  nn::Memory memory = model.start_memory(result.batch);
  for (std::int64_t step = 0; step < plan.steps; ++step) {
    check_for_stop();
    reader.read(step);
    nn::StepOptions step_options;
    step_options.ages = reader.ages;
    const at::Tensor states = model.forward(reader.ids.narrow(1, 0, segment), memory, step_options);
    std::vector<at::Tensor> scored_states, targets;
    for (const Run& run : reader.runs) {
      scored_states.push_back(states.select(0, run.column).narrow(0, 0, run.count));
      targets.push_back(reader.ids.select(0, run.column).narrow(0, 1, run.count));
    }
    if (!targets.empty()) {
      const at::Tensor losses =
          losses_in_blocks(model.model(), at::cat(scored_states), at::cat(targets));
      const double* values = losses.data_ptr<double>();
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const Run& run = reader.runs[i];
        add_losses({run.position, targets[i].data_ptr<std::int64_t>(), values, run.count}, options,
                   result);
        values += run.count;
      }
    }
    if (options.progress) options.progress(result.targets);
  }
  return result;
}

}  // namespace ql::eval
