#include <algorithm>
#include <numeric>

#include "base/signals.h"
#include "generate/samples_internal.h"
#include "kernels/projection.h"
#include "machine/pieces.h"

namespace ql::generate::internal {
namespace {

// A window reads again what it shares with the one before, this many tokens of every row at a time.
// The number does not depend on the rows: a sample has the same bits in any company.
constexpr std::int64_t kReadAtOnce = 64;

}  // namespace

Samples::Samples(const nn::ModelAtLengths& model, const GenerationOptions& options,
                 const Prompt& prompt, std::int64_t first, std::int64_t count)
    : model_(model),
      options_(options),
      prompt_(prompt),
      growing_(
          prompt.growing.streams(std::vector<std::int64_t>(static_cast<std::size_t>(count), 0))),
      rows_(static_cast<std::size_t>(count)) {
  for (std::int64_t i = 0; i < count; ++i) {
    samples_.push_back(
        {first + i, Sampler(options.rules), prompt.recent, prompt.in_a_row, {}, /*ends=*/false});
  }
  if (options.stride > 0) window_ = at::tensor(prompt.window).expand({count, -1});
  std::iota(rows_.begin(), rows_.end(), std::size_t{0});
}

void Samples::make(const Generator::Sink& sink, const Generator::Pause& pause) {
  const kernels::RowsApart apart;
  const auto count = static_cast<std::int64_t>(samples_.size());
  at::Tensor states = prompt_.state.expand({count, 1, prompt_.state.size(2)});
  for (; position_ < options_.tokens; ++position_) {
    const at::Tensor tokens = choose(states);
    pass_on(sink);
    pause();
    check_for_stop();
    const at::Tensor going_on = keep_going(tokens);
    if (rows_.empty()) return;
    states = read(going_on);
  }
}

at::Tensor Samples::read(const at::Tensor& tokens) {
  const c10::Device device = model_.model().options().device();
  if (options_.stride == 0) return model_.forward_next(tokens.to(device), growing_);
  const std::int64_t segment = model_.geometry().lengths.segment;
  std::int64_t next = window_.size(1);
  if (next == segment) {
    window_ = window_.narrow(1, options_.stride, segment - options_.stride);
    growing_ = nn::GrowingSegment(model_.geometry(), model_.start_memory(tokens.size(0)),
                                  tokens.size(0), model_.model().options());
    next = 0;
  }
  window_ = at::cat({window_, tokens}, 1);
  at::Tensor states;
  for (std::int64_t count = 0; next < window_.size(1); next += count) {
    count = std::min(kReadAtOnce, window_.size(1) - next);
    states = model_.forward_next(window_.narrow(1, next, count).to(device), growing_);
  }
  return states.narrow(1, states.size(1) - 1, 1);
}

at::Tensor Samples::choose(const at::Tensor& states) {
  const auto on_cpu = [](const at::Tensor& all) {
    return all.to(at::kCPU, at::kFloat).contiguous();
  };
  // Only a penalty asks where zero is, so that otherwise the probabilities' logarithms will do.
  const bool penalty = options_.rules.repetition_penalty != 1;
  const at::Tensor scores =
      penalty ? model_.model().logits(states) : model_.model().log_probabilities(states);
  const at::Tensor logits = on_cpu(scores);
  const at::Tensor logs = penalty ? on_cpu(at::log_softmax(scores, -1)) : logits;
  const std::int64_t vocabulary = logits.size(2);
  const at::Tensor tokens = at::empty({logits.size(0), 1}, at::kLong);
  const auto add_tokens = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      Sample& sample = samples_[rows_[static_cast<std::size_t>(row)]];
      add_token(sample, logits.data_ptr<float>() + row * vocabulary,
                logs.data_ptr<float>() + row * vocabulary, vocabulary);
      tokens.data_ptr<std::int64_t>()[row] = sample.made.back().id;
    }
  };
  // The rules go over a row several times.
  constexpr double kPasses = 8;
  machine::for_parts(logits.size(0),
                     machine::microseconds_of(0, kPasses * static_cast<double>(logits.nbytes())),
                     add_tokens);
  return tokens;
}

void Samples::add_token(Sample& sample, const float* logits, const float* log_probabilities,
                        std::int64_t vocabulary) {
  const auto stream =
      static_cast<std::uint64_t>(prompt_.number) << 32 | static_cast<std::uint64_t>(sample.number);
  const double uniform =
      uniform_number(options_.seed, stream, static_cast<std::uint64_t>(position_));
  const shard::TokenId id = sample.sampler.choose(logits, vocabulary, sample.recent, uniform);
  sample.made.push_back({sample.number, position_, id, log_probabilities[id]});
  sample.recent.put(id);
  sample.in_a_row = id == options_.until ? sample.in_a_row + 1 : 0;
  sample.ends = sample.in_a_row >= options_.until_times || position_ + 1 == options_.tokens;
}

// Samples are passed on one after the other, so that each is a document.
void Samples::pass_on(const Generator::Sink& sink) {
  for (; shown_ < samples_.size(); ++shown_) {
    for (const GeneratedToken& token : samples_[shown_].made) sink(token);
    samples_[shown_].made.clear();
    if (!samples_[shown_].ends) break;
  }
}

at::Tensor Samples::keep_going(const at::Tensor& tokens) {
  std::vector<std::int64_t> kept;
  std::vector<std::size_t> going_on;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (samples_[rows_[row]].ends) continue;
    kept.push_back(static_cast<std::int64_t>(row));
    going_on.push_back(rows_[row]);
  }
  const bool all = kept.size() == rows_.size();
  rows_ = going_on;
  if (all || kept.empty()) return tokens;
  growing_ = growing_.streams(kept);
  const at::Tensor rows = at::tensor(kept);
  if (window_.defined()) window_ = window_.index_select(0, rows);
  return tokens.index_select(0, rows);
}

}  // namespace ql::generate::internal
