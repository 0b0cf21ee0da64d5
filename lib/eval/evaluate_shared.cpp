#include <ATen/Functions.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "eval/columns.h"
#include "eval/evaluation_methods.h"

namespace ql::eval {
namespace {

// Returns the stream from `begin`, a segment's start, to `end`. Documents that begin before it are
// left out. Scored outputs could reach them only through older memories, and the part begins
// without any.
TokenSource part_of(const TokenSource& whole, std::int64_t begin, std::int64_t end) {
  TokenSource part;
  part.name = whole.name;
  part.tokens = end - begin;
  part.read = [read = whole.read, begin](std::int64_t position, std::int64_t count,
                                         std::int64_t* out, std::size_t cursor) {
    read(begin + position, count, out, cursor);
  };
  if (whole.document_starts) {
    const auto starts = std::make_shared<std::vector<std::int64_t>>();
    part.document_starts = [all = whole.document_starts, starts, begin,
                            end]() -> const std::vector<std::int64_t>& {
      starts->clear();
      for (const std::int64_t start : all()) {
        if (start >= begin && start < end) starts->push_back(start - begin);
      }
      return *starts;
    };
  }
  return part;
}

// Adds up the sums of all processes, in each of them.
void add_up(Evaluation& result, machine::ProcessGroup& group) {
  const at::Tensor counts =
      at::tensor(std::vector<std::int64_t>{result.targets, result.known.targets, result.warm_up});
  const at::Tensor sums = at::tensor(
      std::vector<double>{result.nll, result.squares, result.known.nll, result.known.squares});
  group.sum(counts);
  group.sum(sums);
  const auto* count = counts.data_ptr<std::int64_t>();
  const auto* sum = sums.data_ptr<double>();
  result.targets = count[0];
  result.known.targets = count[1];
  result.warm_up = count[2];
  result.nll = sum[0];
  result.squares = sum[1];
  result.known.nll = sum[2];
  result.known.squares = sum[3];
}

}  // namespace

Evaluation evaluate_shared(const nn::ModelAtLengths& model, const TokenSource& source,
                           const EvaluationOptions& options) {
  machine::ProcessGroup& group = *options.group;
  const std::int64_t segment = options.lengths.segment;
  const std::int64_t segments = (source.tokens - 2) / segment + 1;
  const ColumnPlan plan = plan_columns(segments, warm_up_segments(model.geometry()), group.size());
  const auto own = static_cast<std::size_t>(group.rank());
  Evaluation result;
  int stopped = 0;  // by which signal
  if (own < plan.columns.size()) {
    const Column& column = plan.columns[own];
    const std::int64_t begin = column.read_from * segment;
    const std::int64_t end = std::min(column.end * segment + 1, source.tokens);
    EvaluationOptions alone = options;
    alone.group = nullptr;
    alone.first_target = (column.score_from - column.read_from) * segment + 1;
    alone.progress = [&](std::int64_t targets) {
      group.check_for_stop();
      // Only the first process shows its progress; the others have as much to read.
      if (options.progress) {
        options.progress(std::min(targets * group.size(), source.tokens - 1));
      }
    };
    if (options.sink) {
      alone.sink = [&](std::int64_t position, const double* losses, std::int64_t count) {
        options.sink(begin + position, losses, count);
      };
    }
    try {
      result = evaluate_alone(model, part_of(source, begin, end), alone);
    } catch (const Interrupted& stop) {
      stopped = stop.signal_number();
    }
    result.warm_up += (column.score_from - column.read_from) * segment;
  }
  // The others would wait for the part of a process that a signal has stopped.
  stopped = group.agree_on_stop(stopped);
  if (stopped != 0) throw Interrupted(stopped);
  add_up(result, group);
  return result;
}

}  // namespace ql::eval
