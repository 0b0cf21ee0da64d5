#include "generate/generator.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/resources.h"
#include "base/signals.h"
#include "eval/chunk_size.h"
#include "eval/token_check.h"
#include "kernels/projection.h"

namespace ql::generate {
namespace {

// So many samples are made side by side: they share the reading of the weights.
constexpr std::int64_t kSideBySide = 64;
// Their memories take such a part of the available memory at most.
constexpr std::int64_t kShareOfAvailable = 8;

}  // namespace

Generator::Generator(const nn::ModelAtLengths& model, std::string name,
                     const GenerationOptions& options)
    : model_(model),
      name_(std::move(name)),
      options_(options),
      segments_(eval::automatic_segments(model.model().network(), model.geometry(),
                                         model.model().options().device())) {
  const std::int64_t vocabulary = model.model().network().vocab_size;
  if (options.until && static_cast<std::int64_t>(*options.until) >= vocabulary) {
    throw UsageError("--until", fmt::format("{} is outside the vocabulary of {} entries",
                                            *options.until, vocabulary));
  }
  begin_prompt();
}

void Generator::begin_prompt() {
  memory_ = model_.start_memory(1);
  waiting_.clear();
  position_ = document_ = 0;
  starts_.clear();
  seen_.assign(static_cast<std::size_t>(model_.model().network().vocab_size), false);
}

void Generator::begin_document() {
  if (model_.model().network().reset_memory_at_documents) starts_.push_back(position_);
}

void Generator::put(const shard::TokenId* ids, std::size_t count) {
  const std::vector<std::int64_t> wide(ids, ids + count);
  eval::check_ids(name_, position_, wide.data(), static_cast<std::int64_t>(count),
                  model_.model().network().vocab_size);
  for (const shard::TokenId id : wide) seen_[id] = true;
  waiting_.insert(waiting_.end(), wide.begin(), wide.end());
  position_ += static_cast<std::int64_t>(count);
  // The last token has to wait: its state is the one that is asked for.
  while (static_cast<std::int64_t>(waiting_.size()) > segments_ * segment()) {
    read_segments(segments_);
  }
}

void Generator::read_segments(std::int64_t count) {
  if (count == 0) return;
  const std::int64_t tokens = count * segment();
  const std::int64_t begin = position_ - static_cast<std::int64_t>(waiting_.size());
  std::vector<std::int64_t> ages;
  if (model_.model().network().reset_memory_at_documents) {
    for (std::int64_t first = begin; first < begin + tokens; first += segment()) {
      for (; !starts_.empty() && starts_.front() <= first; starts_.pop_front()) {
        document_ = starts_.front();
      }
      ages.push_back(first - document_);
    }
  }
  model_.forward_stream(at::from_blob(waiting_.data(), {count, segment()}, at::kLong).clone(),
                        memory_, ages);
  waiting_.erase(waiting_.begin(), waiting_.begin() + tokens);
  check_for_stop();
}

void Generator::generate(const Sink& sink, const Pause& pause) {
  if (waiting_.empty()) throw std::logic_error("an empty prompt");
  const at::NoGradGuard no_gradient;
  read_segments((static_cast<std::int64_t>(waiting_.size()) - 1) / segment());
  const std::int64_t begin = position_ - static_cast<std::int64_t>(waiting_.size());
  for (; !starts_.empty() && starts_.front() <= begin; starts_.pop_front()) {
    document_ = starts_.front();
  }
  nn::GrowingSegment prompt(model_.geometry(), memory_, 1, model_.model().options(),
                            begin - document_);
  at::Tensor state;
  for (std::size_t first = 0; first < waiting_.size();) {
    std::size_t last = waiting_.size();
    if (!starts_.empty()) {
      const auto start = static_cast<std::size_t>(starts_.front() - begin);
      if (start == first) {
        prompt.begin_document();
        starts_.pop_front();
        continue;
      }
      last = start;
    }
    const at::Tensor tokens =
        at::tensor(std::vector<std::int64_t>(waiting_.begin() + static_cast<std::ptrdiff_t>(first),
                                             waiting_.begin() + static_cast<std::ptrdiff_t>(last)));
    state = model_.forward_next(tokens.unsqueeze(0), prompt);
    first = last;
  }
  state = state.narrow(1, state.size(1) - 1, 1);
  const std::int64_t available = available_bytes();  // 0: not known
  const std::int64_t room =
      available > 0 ? available / kShareOfAvailable / prompt.bytes_per_stream() : kSideBySide;
  const std::int64_t side_by_side = std::clamp<std::int64_t>(room, 1, kSideBySide);
  for (std::int64_t first = 0; first < options_.samples; first += side_by_side) {
    make_samples(prompt, state, first, std::min(side_by_side, options_.samples - first), sink,
                 pause);
  }
  ++prompt_;
  begin_prompt();
}

void Generator::make_samples(const nn::GrowingSegment& prompt, const at::Tensor& state,
                             std::int64_t first, std::int64_t count, const Sink& sink,
                             const Pause& pause) const {
  const kernels::RowsApart apart;
  struct Sample {
    Sampler sampler;
    std::vector<bool> seen;
    std::int64_t in_a_row = 0;  // of options_.until
    std::vector<GeneratedToken> made = {};
    bool ends = false;
  };
  const std::int64_t in_a_row = options_.until && waiting_.back() == *options_.until ? 1 : 0;
  std::vector<Sample> samples(static_cast<std::size_t>(count),
                              Sample{Sampler(options_.rules), seen_, in_a_row});
  std::vector<std::int64_t> rows(samples.size());  // the samples that go on
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  nn::GrowingSegment growing = prompt.streams(std::vector<std::int64_t>(samples.size(), 0));
  at::Tensor states = state.expand({count, 1, state.size(2)});
  std::size_t shown = 0;  // the sample whose tokens are passed on as they come
  for (std::int64_t position = 0; position < options_.tokens; ++position) {
    const at::Tensor all =
        model_.model().log_probabilities(states).to(at::kCPU, at::kFloat).contiguous();
    const std::int64_t vocabulary = all.size(2);
    const at::Tensor next = at::empty({all.size(0), 1}, at::kLong);
    at::parallel_for(0, all.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t index = rows[static_cast<std::size_t>(row)];
        Sample& sample = samples[static_cast<std::size_t>(index)];
        const float* of_sample = all.data_ptr<float>() + row * vocabulary;
        const auto number =
            static_cast<std::uint64_t>(prompt_) << 32 | static_cast<std::uint64_t>(first + index);
        const shard::TokenId id = sample.sampler.choose(
            of_sample, vocabulary, sample.seen,
            uniform_number(options_.seed, number, static_cast<std::uint64_t>(position)));
        next.data_ptr<std::int64_t>()[row] = id;
        sample.made.push_back({first + index, position, id, of_sample[id]});
        sample.seen[id] = true;
        sample.in_a_row = id == options_.until ? sample.in_a_row + 1 : 0;
        sample.ends = sample.in_a_row >= options_.until_times || position + 1 == options_.tokens;
      }
    });
    // Samples are passed on one after the other, so that each is a document.
    for (; shown < samples.size(); ++shown) {
      for (const GeneratedToken& token : samples[shown].made) sink(token);
      samples[shown].made.clear();
      if (!samples[shown].ends) break;
    }
    pause();
    check_for_stop();
    std::vector<std::int64_t> going_on;  // rows
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (!samples[static_cast<std::size_t>(rows[row])].ends) {
        going_on.push_back(static_cast<std::int64_t>(row));
      }
    }
    if (going_on.empty()) return;
    const at::Tensor tokens = next.index_select(0, at::tensor(going_on));
    if (going_on.size() < rows.size()) {
      growing = growing.streams(going_on);
      for (std::size_t i = 0; i < going_on.size(); ++i) {
        rows[i] = rows[static_cast<std::size_t>(going_on[i])];
      }
      rows.resize(going_on.size());
    }
    states = model_.forward_next(tokens.to(states.device()), growing);
  }
}

}  // namespace ql::generate
