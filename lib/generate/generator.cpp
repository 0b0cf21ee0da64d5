#include "generate/generator.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/resources.h"
#include "base/signals.h"
#include "eval/chunk_size.h"
#include "eval/evaluate.h"
#include "eval/token_check.h"
#include "generate/samples_internal.h"

namespace ql::generate {
namespace {

// So many samples are made side by side: they share the reading of the weights.
constexpr std::int64_t kSideBySide = 64;
// Their memories take such a part of the available memory at most.
constexpr std::int64_t kShareOfAvailable = 8;

void check_tokens(const GenerationOptions& options, std::int64_t vocabulary) {
  const auto check = [vocabulary](const char* option, shard::TokenId id) {
    if (static_cast<std::int64_t>(id) < vocabulary) return;
    throw UsageError(
        option, fmt::format("{} is outside the vocabulary of {} entries", id, vocabulary),
        fmt::format("give an id from 0 to {}, or a token by its name", vocabulary - 1));
  };
  if (options.until) check("--until", *options.until);
  const std::set<shard::TokenId> without(options.rules.without.begin(),
                                         options.rules.without.end());
  for (const shard::TokenId id : without) check("--without", id);
  if (static_cast<std::int64_t>(without.size()) == vocabulary) {
    throw UsageError("--without", "no token of the vocabulary is left to draw",
                     "name fewer tokens");
  }
  if (options.until && without.count(*options.until) > 0) {
    throw UsageError(
        "--without",
        fmt::format("{} is the token of --until, which would never come", *options.until),
        "name it in one of the two");
  }
}

}  // namespace

std::int64_t usual_stride(const net::Geometry& geometry) {
  return eval::has_memory(geometry) ? 0 : std::max<std::int64_t>(1, geometry.lengths.segment / 2);
}

Generator::Generator(const nn::ModelAtLengths& model, std::string name,
                     const GenerationOptions& options)
    : model_(model),
      name_(std::move(name)),
      options_(options),
      segments_(eval::automatic_segments(model.model().network(), model.geometry(),
                                         model.model().options().device())),
      recent_(0, 0) {
  eval::check_stride(model.geometry(), options.stride);
  check_tokens(options, model.model().network().vocab_size);
  begin_prompt();
}

void Generator::begin_prompt() {
  memory_ = model_.start_memory(1);
  waiting_.clear();
  position_ = 0;
  documents_ = {};
  recent_ = RecentTokens(model_.model().network().vocab_size, options_.rules.repetition_window);
}

void Generator::begin_document() {
  if (model_.model().network().reset_memory_at_documents) documents_.put_start(position_);
}

void Generator::put(const shard::TokenId* ids, std::size_t count) {
  const std::vector<std::int64_t> wide(ids, ids + count);
  eval::check_ids(name_, position_, wide.data(), static_cast<std::int64_t>(count),
                  model_.model().network().vocab_size);
  for (std::size_t i = 0; i < count; ++i) recent_.put(ids[i]);
  waiting_.insert(waiting_.end(), wide.begin(), wide.end());
  position_ += static_cast<std::int64_t>(count);
  const std::int64_t beyond = static_cast<std::int64_t>(waiting_.size()) - segment();
  if (options_.stride > 0 && beyond > 0) {
    // The windows before the last one leave nothing to it, so nobody has to compute them.
    const std::int64_t windows = (beyond + options_.stride - 1) / options_.stride;
    waiting_.erase(waiting_.begin(), waiting_.begin() + windows * options_.stride);
  }
  // The last token has to wait: its state is the one that is asked for.
  while (static_cast<std::int64_t>(waiting_.size()) > segments_ * segment()) {
    read_segments(segments_);
  }
}

void Generator::read_segments(std::int64_t count) {
  if (count == 0) return;
  const at::NoGradGuard no_gradient;
  const std::int64_t tokens = count * segment();
  std::vector<std::int64_t> ages;
  if (model_.model().network().reset_memory_at_documents) {
    for (std::int64_t i = 0; i < count; ++i) {
      ages.push_back(documents_.age(tokens_read() + i * segment()));
    }
  }
  model_.forward_stream(at::from_blob(waiting_.data(), {count, segment()}, at::kLong).clone(),
                        memory_, ages);
  waiting_.erase(waiting_.begin(), waiting_.begin() + tokens);
  check_for_stop();
}

at::Tensor Generator::read_rest(nn::GrowingSegment& prompt) {
  const std::int64_t begin = tokens_read();
  at::Tensor states;
  for (std::int64_t first = begin, last = 0; first < position_; first = last) {
    // All but the first round begin where a document does.
    if (first > begin) prompt.begin_document();
    documents_.age(first);
    last = std::min(documents_.next_start().value_or(position_), position_);
    const at::Tensor tokens =
        at::from_blob(waiting_.data() + (first - begin), {1, last - first}, at::kLong);
    states = model_.forward_next(tokens.clone(), prompt);
  }
  return states.narrow(1, states.size(1) - 1, 1);
}

void Generator::generate(const Sink& sink, const Pause& pause) {
  if (waiting_.empty()) throw std::logic_error("an empty prompt");
  const at::NoGradGuard no_gradient;
  read_segments((static_cast<std::int64_t>(waiting_.size()) - 1) / segment());
  nn::GrowingSegment growing(model_.geometry(), memory_, 1, model_.model().options(),
                             documents_.age(tokens_read()));
  const at::Tensor state = read_rest(growing);
  const bool until_came = options_.until && waiting_.back() == *options_.until;
  const internal::Prompt prompt{prompt_, growing, state, waiting_, recent_, until_came ? 1 : 0};
  const std::int64_t available = available_bytes();  // 0: not known
  const std::int64_t room =
      available > 0 ? available / kShareOfAvailable / growing.bytes_per_stream() : kSideBySide;
  const std::int64_t side_by_side = std::clamp<std::int64_t>(room, 1, kSideBySide);
  for (std::int64_t first = 0; first < options_.samples; first += side_by_side) {
    const std::int64_t count = std::min(side_by_side, options_.samples - first);
    internal::Samples(model_, options_, prompt, first, count).make(sink, pause);
  }
  ++prompt_;
  begin_prompt();
}

}  // namespace ql::generate
