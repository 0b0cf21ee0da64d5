// Reads prompts, and makes their continuations in batches.

#include "generate/generator.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <deque>
#include <numeric>
#include <set>

#include "base/process.h"
#include "base/resources.h"
#include "base/strings.h"
#include "eval/chunk_size.h"
#include "eval/evaluate.h"
#include "kernels/product.h"
#include "machine/threads.h"

namespace ql::generate {

namespace {

// When the window has slid, the network reads all tokens of the window, at most this many of every
// row at a time. This limit does not depend on the number of rows, so a sample has the same bits in
// a batch of any size.
constexpr std::int64_t kReadAtOnce = 64;

// Describes a prompt that was read. The objects to which it has references must outlive it.
struct Prompt {
  std::int64_t number;                      // of this prompt, from 0
  const nn::DecodeState& decoding;          // the state of decoding at the prompt's end
  const at::Tensor& state;                  // [1, 1, d_model], of the prompt's last token
  const std::vector<std::int64_t>& window;  // tokens of the current window, if windows slide
  const RecentTokens& recent;
  std::int64_t last;  // its last token
};

class Samples {
 public:
  // Prepares samples first .. first + count - 1. The arguments must outlive this object.
  Samples(const nn::ModelAtLengths& model, const GenerationOptions& options, const Prompt& prompt,
          std::int64_t first, std::int64_t count)
      : model_(model),
        options_(options),
        prompt_(prompt),
        decoding_(
            prompt.decoding.streams(std::vector<std::int64_t>(static_cast<std::size_t>(count), 0))),
        rows_(static_cast<std::size_t>(count)) {
    for (std::int64_t i = 0; i < count; ++i) {
      samples_.push_back({first + i, prompt.recent, static_cast<shard::TokenId>(prompt.last),
                          StopStrings(options.stop_strings)});
    }
    if (options.stride > 0) window_ = at::tensor(prompt.window).expand({count, -1});
    std::iota(rows_.begin(), rows_.end(), std::size_t{0});
  }

  // Generates the tokens of the samples. Throws Interrupted if a signal requests a stop.
  void make(const Generator::Sink& sink, const Generator::Pause& pause) {
    const kernels::BatchInvariant apart;
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

 private:
  struct Sample {
    std::int64_t number;
    RecentTokens recent;
    shard::TokenId last;                   // the newest token, of the prompt at first
    StopStrings stop;                      // reads the texts of the tokens, if options have strings
    std::int64_t in_a_row = 1;             // this many of the newest tokens are `last`
    std::deque<GeneratedToken> made = {};  // not yet passed on
    std::deque<std::size_t> text_ends = {};  // where the texts of `made` end in the sample's text
    std::size_t text = 0;                    // length of the sample's text
    bool ends = false;
  };

  // Reads `tokens` [rows, 1], the next token of every row, and returns their states [rows, 1,
  // d_model]. A row is a sample that has not ended.
  at::Tensor read(const at::Tensor& tokens) {
    const c10::Device device = model_.model().options().device();
    if (options_.stride == 0) return model_.forward_next(tokens.to(device), decoding_);
    const std::int64_t segment = model_.geometry().lengths.segment;
    std::int64_t next = window_.size(1);
    if (next == segment) {
      window_ = window_.narrow(1, options_.stride, segment - options_.stride);
      decoding_ = nn::DecodeState(model_.geometry(), model_.start_memory(tokens.size(0)),
                                  tokens.size(0), model_.model().options());
      next = 0;
    }
    window_ = at::cat({window_, tokens}, 1);
    at::Tensor states;
    for (std::int64_t count = 0; next < window_.size(1); next += count) {
      count = std::min(kReadAtOnce, window_.size(1) - next);
      states = model_.forward_next(window_.narrow(1, next, count).to(device), decoding_);
    }
    return states.narrow(1, states.size(1) - 1, 1);
  }

  // Chooses the next token of every row from `states` [rows, 1, d_model], and returns these tokens
  // [rows, 1].
  at::Tensor choose(const at::Tensor& states) {
    const auto on_cpu = [](const at::Tensor& all) {
      return all.to(at::kCPU, at::kFloat).contiguous();
    };
    // Only the repetition penalty depends on the sign of logits; without it, log probabilities give
    // the same choice as logits.
    const bool penalty = options_.rules.repetition_penalty != 1;
    const at::Tensor scores =
        penalty ? model_.model().logits(states) : model_.model().log_probabilities(states);
    const at::Tensor logits = on_cpu(scores);
    const at::Tensor logs = penalty ? on_cpu(at::log_softmax(scores, -1)) : logits;
    // In an adaptive softmax one cluster alone may be NaN, and its ids would never be chosen.
    if (logs.isnan().any().item<bool>()) throw eval::NotFinite(options_.model, position_);
    const std::int64_t vocabulary = logits.size(2);
    at::Tensor tokens = at::empty({logits.size(0), 1}, at::kLong);
    const auto add_tokens = [&](std::int64_t begin, std::int64_t end) {
      Sampler sampler(options_.rules);
      for (std::int64_t row = begin; row < end; ++row) {
        Sample& sample = samples_[rows_[static_cast<std::size_t>(row)]];
        add_token(sample, sampler, logits.data_ptr<float>() + row * vocabulary,
                  logs.data_ptr<float>() + row * vocabulary, vocabulary);
        tokens.data_ptr<std::int64_t>()[row] = sample.made.back().id;
      }
    };
    // The sampling rules go through a row about this many times.
    constexpr double kPasses = 8;
    machine::for_parts(logits.size(0),
                       machine::microseconds_of(0, kPasses * static_cast<double>(logits.nbytes())),
                       add_tokens);
    return tokens;
  }

  void add_token(Sample& sample, Sampler& sampler, const float* logits,
                 const float* log_probabilities, std::int64_t vocabulary) {
    const auto stream = static_cast<std::uint64_t>(prompt_.number) << 32 |
                        static_cast<std::uint64_t>(sample.number);
    const double uniform =
        uniform_number(options_.seed, stream, static_cast<std::uint64_t>(position_));
    const shard::TokenId id = sampler.choose(logits, vocabulary, sample.recent, uniform);
    eval::require_finite(log_probabilities[id], options_.model, position_);
    sample.made.push_back({sample.number, position_, id, log_probabilities[id]});
    sample.recent.put(id);
    sample.in_a_row = id == sample.last ? sample.in_a_row + 1 : 1;
    sample.last = id;
    if (!options_.stop_strings.empty()) {
      sample.text += options_.token_texts[id].size();
      sample.stop.put(options_.token_texts[id]);
    }
    sample.text_ends.push_back(sample.text);
    sample.ends = position_ + 1 == options_.tokens || sample.stop.found() ||
                  std::any_of(options_.ends.begin(), options_.ends.end(), [&](const End& end) {
                    return end.id == id && sample.in_a_row >= end.times;
                  });
  }

  // Passes on the tokens of one sample after the other, so that each sample is a document.
  void pass_on(const Generator::Sink& sink) {
    for (; shown_ < samples_.size(); ++shown_) {
      Sample& sample = samples_[shown_];
      for (; !sample.made.empty(); sample.made.pop_front(), sample.text_ends.pop_front()) {
        const std::size_t end = sample.text_ends.front(), settled = sample.stop.settled();
        if (end > settled && !sample.ends) break;
        GeneratedToken& token = sample.made.front();
        if (end > settled && sample.stop.found()) {
          const std::size_t begin = end - options_.token_texts[token.id].size();
          token.before_string = std::max(settled, begin) - begin;
        }
        sink(token);
      }
      if (!sample.ends) break;
    }
  }

  // Returns the `tokens` of the samples that continue, and drops the rows of the others.
  at::Tensor keep_going(const at::Tensor& tokens) {
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
    decoding_ = decoding_.streams(kept);
    const at::Tensor rows = at::tensor(kept);
    if (window_.defined()) window_ = window_.index_select(0, rows);
    return tokens.index_select(0, rows);
  }

  const nn::ModelAtLengths& model_;
  const GenerationOptions& options_;
  const Prompt& prompt_;
  nn::DecodeState decoding_;
  at::Tensor window_;  // the tokens of the current window [rows, count], if windows slide
  std::vector<Sample> samples_;
  std::vector<std::size_t> rows_;  // the sample of each row of decoding_, as its index in samples_
  std::size_t shown_ = 0;  // the sample whose tokens are passed on as soon as they are chosen
  std::int64_t position_ = 0;
};

// At most this many samples are generated as a batch, so that the weights are read once for all of
// them.
constexpr std::int64_t kSideBySide = 64;
// A batch of several samples takes at most the available memory divided by this number.
constexpr std::int64_t kShareOfAvailable = 8;

void check_tokens(const GenerationOptions& options, std::int64_t vocabulary) {
  const auto check = [vocabulary](const char* option, shard::TokenId id) {
    if (static_cast<std::int64_t>(id) < vocabulary) return;
    throw UsageError(
        option, fmt::format("the id {} is outside the vocabulary of {} entries", id, vocabulary),
        fmt::format("give an id from 0 to {}, or a token by its name", vocabulary - 1));
  };
  for (const End& end : options.ends) check("--until", end.id);
  const std::set<shard::TokenId> without(options.rules.without.begin(),
                                         options.rules.without.end());
  for (const shard::TokenId id : without) check("--without", id);
  if (static_cast<std::int64_t>(without.size()) == vocabulary) {
    throw UsageError("--without", "excludes every token of the vocabulary", "name fewer tokens");
  }
  for (const End& end : options.ends) {
    if (without.count(end.id) == 0) continue;
    throw UsageError(
        "--without",
        fmt::format("the token with the id {} is also given with --until, and would never occur",
                    end.id),
        "give it with one of the two options only");
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
      segments_(eval::segments_of_chunk(model)),
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
    // A window leaves no state for the next window, so only the last window needs to be computed.
    const std::int64_t windows = (beyond + options_.stride - 1) / options_.stride;
    waiting_.erase(waiting_.begin(), waiting_.begin() + windows * options_.stride);
  }
  // The last token stays in waiting_: generate() reads it, and chooses the next token from its
  // state.
  while (static_cast<std::int64_t>(waiting_.size()) > segments_ * segment()) {
    read_segments(segments_);
  }
}

void Generator::read_segments(std::int64_t count) {
  if (count == 0) return;
  const at::NoGradGuard no_gradient;
  const std::int64_t tokens = count * segment();
  std::vector<std::int64_t> document_offsets;
  if (model_.model().network().reset_memory_at_documents) {
    for (std::int64_t i = 0; i < count; ++i) {
      document_offsets.push_back(documents_.offset(tokens_read() + i * segment()));
    }
  }
  model_.forward_stream(at::from_blob(waiting_.data(), {count, segment()}, at::kLong).clone(),
                        memory_, document_offsets);
  waiting_.erase(waiting_.begin(), waiting_.begin() + tokens);
  check_for_stop();
}

at::Tensor Generator::read_rest(nn::DecodeState& prompt) {
  const std::int64_t begin = tokens_read();
  at::Tensor states;
  for (std::int64_t first = begin, last = 0; first < position_; first = last) {
    // All rounds of the loop except the first begin where a document begins.
    if (first > begin) prompt.begin_document();
    documents_.offset(first);
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
  nn::DecodeState decoding(model_.geometry(), memory_, 1, model_.model().options(),
                           documents_.offset(tokens_read()));
  const at::Tensor state = read_rest(decoding);
  const Prompt prompt{prompt_, decoding, state, waiting_, recent_, waiting_.back()};
  const std::int64_t available = available_bytes();  // 0: not known
  // A sample has a logit, a log probability and a count for each token, of 4 bytes each.
  constexpr std::int64_t kBytesOfToken = 12;
  const std::int64_t own = kBytesOfToken * model_.model().network().vocab_size;
  const std::int64_t room =
      available > 0 ? available / kShareOfAvailable / (decoding.bytes_per_stream() + own)
                    : kSideBySide;
  const std::int64_t side_by_side = std::clamp<std::int64_t>(room, 1, kSideBySide);
  for (std::int64_t first = 0; first < options_.samples; first += side_by_side) {
    const std::int64_t count = std::min(side_by_side, options_.samples - first);
    Samples(model_, options_, prompt, first, count).make(sink, pause);
  }
  ++prompt_;
  begin_prompt();
}

}  // namespace ql::generate
