// Continues a prompt, token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/sampling.h"
#include "nn/decode.h"
#include "nn/model_at_lengths.h"
#include "shard/document_starts.h"
#include "shard/manifest.h"

namespace ql::generate {

// A sample ends after the token `id` that comes `times` times in a row. The prompt's last token
// counts, too.
struct End {
  shard::TokenId id = 0;
  std::int64_t times = 1;
};

struct GenerationOptions {
  SamplingRules rules;
  std::string model;  // name of the network in messages; may be empty
  std::uint64_t seed = 1;
  std::int64_t samples = 1;  // continuations of each prompt
  std::int64_t tokens = 0;   // maximum for each sample
  std::vector<End> ends;     // any of these ends a sample
  // A sample also ends with any of these strings in the text of its tokens, over the borders of
  // tokens. `token_texts` has the text of every id; it may be empty if there are no strings.
  std::vector<std::string> stop_strings, token_texts;
  // In a network without memory, this many of the oldest tokens leave a full window. The network
  // then reads the remaining tokens again. So tokens have the context of an evaluation with the
  // same stride. 0: all tokens leave a full window, and the next token sees no earlier token.
  std::int64_t stride = 0;
};

// Returns the usual GenerationOptions::stride: 0 for a network with memory, otherwise half the
// segment length. When a window is full, the other half of its tokens stays.
std::int64_t usual_stride(const net::Geometry& geometry);

struct GeneratedToken {
  std::int64_t sample = 0;    // of the prompt, from 0
  std::int64_t position = 0;  // of the sample, from 0
  shard::TokenId id = 0;
  double log_probability = 0;  // of the network, before the sampling rules
  // If the token has a part of the stop string that ended its sample: how many bytes of the token's
  // text come before the string.
  std::optional<std::size_t> before_string = {};
};

// Takes prompts one after the other. No state of a prompt reaches the next prompt.
class Generator {
 public:
  // Takes the tokens of all samples in order: the first sample's as soon as they are chosen and
  // known not to belong to a stop string, then the second's, and so on.
  using Sink = std::function<void(const GeneratedToken&)>;
  // A Pause is called after each step. By then the Sink has all tokens that can be passed on in
  // order.
  using Pause = std::function<void()>;

  // `name` is the prompts' name in messages. The model must outlive this object. Throws UsageError
  // for an `ends` or a `without` outside the vocabulary, and if `without` excludes one of `ends` or
  // every token. Throws ConfigError for a stride that an evaluation refuses (eval/evaluate.h).
  Generator(const nn::ModelAtLengths& model, std::string name, const GenerationOptions& options);

  // Call this before put() if the prompt's next token begins a document.
  void begin_document();
  // Takes the prompt's next tokens. Throws Error for an id outside the vocabulary, and Interrupted
  // if a signal requests a stop.
  void put(const shard::TokenId* ids, std::size_t count);
  std::int64_t prompt_tokens() const { return position_; }
  // Ends the prompt, which must not be empty, and generates its samples. Throws Interrupted, and
  // eval::NotFinite (eval/evaluate.h) with the position in the sample.
  void generate(const Sink& sink, const Pause& pause);
  const std::string& name() const { return name_; }

 private:
  std::int64_t segment() const { return model_.geometry().lengths.segment; }
  // Returns the number of the prompt's tokens that were read or that left the window.
  std::int64_t tokens_read() const {
    return position_ - static_cast<std::int64_t>(waiting_.size());
  }
  void read_segments(std::int64_t count);
  // Reads the pending tokens, and returns the state of the last token, [1, 1, d_model].
  at::Tensor read_rest(nn::DecodeState& prompt);
  void begin_prompt();

  const nn::ModelAtLengths& model_;
  std::string name_;
  GenerationOptions options_;
  std::int64_t segments_;  // number of segments that go through a layer at once
  std::int64_t prompt_ = 0;

  // These belong to the current prompt.
  nn::Memory memory_;
  std::vector<std::int64_t> waiting_;
  std::int64_t position_ = 0;
  shard::DocumentOffsets documents_;
  RecentTokens recent_;
};

}  // namespace ql::generate
