// Checks an evaluation's input, reads it, and shares it among processes.

#include "eval/evaluate.h"

#include <ATen/Functions.h>

#include <cmath>
#include <initializer_list>

#include "base/stopwatch.h"
#include "eval/scorers.h"
#include "eval/stream_parts.h"

namespace ql::eval {

NotFinite::NotFinite(const std::string& model, std::optional<std::int64_t> position)
    : Error(model,
            fmt::format("the network's output{} is not finite",
                        position ? fmt::format(" for token {}", *position) : ""),
            "its weights are too large to compute with: use another checkpoint; with --precision "
            "float16, float32 may help") {}

void LossSums::add(double loss) {
  ++targets;
  nll += loss;
  squares += loss * loss;
}

void LossSums::add(const LossSums& other) {
  targets += other.targets;
  nll += other.nll;
  squares += other.squares;
}

void Evaluation::add(const Evaluation& other) {
  LossSums::add(other);
  known.add(other.known);
  warm_up += other.warm_up;
  seconds += other.seconds;
}

double LossSums::mean() const { return nll / static_cast<double>(targets); }

double LossSums::perplexity() const { return std::exp(mean()); }

double LossSums::standard_error() const {
  if (targets < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<double>(targets);
  const double variance = std::max(0.0, squares / count - mean() * mean());
  return std::sqrt(variance / (count - 1));
}

bool has_memory(const net::Geometry& geometry) {
  return std::any_of(geometry.stages.begin(), geometry.stages.end(), [](const net::Stage& stage) {
    return stage.memory + stage.compressed_memory > 0;
  });
}

void check_stride(const net::Geometry& geometry, std::int64_t stride) {
  if (stride == 0) return;
  if (stride < 0 || stride > geometry.lengths.segment) {
    throw ConfigError("stride", fmt::format("expected 1 to {}, the segment length, found {}",
                                            geometry.lengths.segment, stride));
  }
  if (has_memory(geometry)) {
    throw ConfigError("stride", "works only without memory, but this network has a memory",
                      "leave --stride out, or give --memory 0 --compressed-memory 0, which "
                      "networks of one scale without same_length accept");
  }
}

// Evaluates in this process alone, chunk by chunk.
static Evaluation evaluate_alone(const nn::ModelAtLengths& model, const TokenSource& source,
                                 const EvaluationOptions& options) {
  StreamScorer scorer(model, source.name, options);
  if (model.model().network().reset_memory_at_documents) {
    for (const std::int64_t start : source.document_starts()) scorer.put_document(start);
  }
  std::vector<std::int64_t> ids(
      static_cast<std::size_t>(std::min(scorer.chunk_tokens(), source.tokens)));
  for (std::int64_t begin = 0; begin < source.tokens; begin += scorer.chunk_tokens()) {
    const std::int64_t count = std::min(scorer.chunk_tokens(), source.tokens - begin);
    source.read(begin, count, ids.data());
    scorer.put(ids.data(), count);
  }
  scorer.finish();
  return scorer.evaluation();
}

// Replaces each value, in every process, by its sum over all processes.
template <typename Number>
static void add_up(machine::ProcessGroup& group, std::initializer_list<Number*> values) {
  std::vector<Number> own;
  for (const Number* value : values) own.push_back(*value);
  const at::Tensor sums = at::tensor(own);
  group.sum(sums);
  const Number* sum = sums.data_ptr<Number>();
  for (Number* value : values) *value = *sum++;
}

// Evaluates a part of the stream in each process of options.group, and adds up the results.
static Evaluation evaluate_shared(const nn::ModelAtLengths& model, const TokenSource& source,
                                  const EvaluationOptions& options) {
  machine::ProcessGroup& group = *options.group;
  const std::int64_t segment = options.lengths.segment;
  const std::int64_t segments = (source.tokens - 2) / segment + 1;
  const std::vector<StreamPart> parts =
      plan_parts(segments, warm_up_segments(model.geometry()), group.size());
  const bool has_part = static_cast<std::size_t>(group.rank()) < parts.size();
  Evaluation result;
  int stopped = 0;              // the signal that stopped this process; 0: none
  std::int64_t not_finite = 0;  // processes that threw NotFinite
  // A process without a part computes another process's part, too. The time limit of the group
  // would end its waiting for the others.
  const StreamPart& part = parts[has_part ? static_cast<std::size_t>(group.rank()) : 0];
  const std::int64_t begin = part.read_from * segment;
  const std::int64_t end = std::min(part.end * segment + 1, source.tokens);
  EvaluationOptions alone = options;
  alone.group = &machine::ProcessGroup::single();
  alone.first_target = (part.score_from - part.read_from) * segment + 1;
  alone.progress = [&](std::int64_t targets) {
    group.check_for_stop();
    // Only the first process shows progress. Its count is multiplied, because the others read
    // about as much.
    if (options.progress) {
      options.progress(std::min(targets * group.size(), source.tokens - 1));
    }
  };
  alone.sink = nullptr;
  if (options.sink && has_part) {
    alone.sink = [&](ScoredTargets targets) {
      targets.position += begin;
      options.sink(targets);
    };
  }
  try {
    result = evaluate_alone(model, part_of(source, begin, end), alone);
  } catch (const Interrupted& stop) {
    stopped = stop.signal_number();
  } catch (const NotFinite&) {
    not_finite = 1;
  }
  result.warm_up += (part.score_from - part.read_from) * segment;
  if (!has_part) result = Evaluation();
  // All processes stop together, because the others would wait for the sums of a process that
  // stopped.
  stopped = group.agree_on_stop(stopped);
  if (stopped != 0) throw Interrupted(stopped);
  add_up(group, {&result.targets, &result.known.targets, &result.warm_up, &not_finite});
  // All processes throw, so a training diverges in all of them.
  if (not_finite > 0) throw NotFinite(options.model);
  add_up(group, {&result.nll, &result.squares, &result.known.nll, &result.known.squares});
  return result;
}

Evaluation evaluate(const nn::Model& model, const TokenSource& source,
                    const EvaluationOptions& options) {
  const nn::ModelAtLengths at_lengths(model, options.lengths);
  check_length(source);
  const Stopwatch watch;
  Evaluation result = options.group->is_single() ? evaluate_alone(at_lengths, source, options)
                                                 : evaluate_shared(at_lengths, source, options);
  result.seconds = watch.seconds();
  return result;
}

void check_length(const TokenSource& source) {
  if (source.tokens < 2) {
    throw Error(source.name, fmt::format("expected at least 2 tokens, found {}", source.tokens),
                "the first token is never predicted, so a single one cannot be scored");
  }
}

void check_ids(const std::string& name, std::int64_t begin, const std::int64_t* ids,
               std::int64_t count, std::int64_t vocab_size) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      throw Error(name,
                  fmt::format("token {} has the id {}, but the vocabulary has {} entries (0 to {})",
                              begin + i, ids[i], vocab_size, vocab_size - 1),
                  "encode the text with the vocabulary of the training data");
    }
  }
}

}  // namespace ql::eval
