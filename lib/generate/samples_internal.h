// Makes samples of a prompt side by side. Used by generator.cpp only.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "generate/generator.h"
#include "generate/sampling.h"
#include "nn/growing_segment.h"
#include "nn/model_at_lengths.h"
#include "shard/token_info.h"

namespace ql::generate::internal {

// A prompt that was read. What it refers to must outlive it.
struct Prompt {
  std::int64_t number;                      // of this prompt, from 0
  const nn::GrowingSegment& growing;        // one stream
  const at::Tensor& state;                  // [1, 1, d_model], of the last token
  const std::vector<std::int64_t>& window;  // of the window under way, where windows slide
  const RecentTokens& recent;
  std::int64_t in_a_row;  // 1 where it ends with options.until, else 0
};

class Samples {
 public:
  // Makes the samples first .. first + count - 1. The arguments must outlive this object.
  Samples(const nn::ModelAtLengths& model, const GenerationOptions& options, const Prompt& prompt,
          std::int64_t first, std::int64_t count);
  // Throws Interrupted.
  void make(const Generator::Sink& sink, const Generator::Pause& pause);

 private:
  struct Sample {
    std::int64_t number;
    Sampler sampler;
    RecentTokens recent;
    std::int64_t in_a_row;             // of options.until
    std::vector<GeneratedToken> made;  // and not passed on
    bool ends;
  };

  // Gives every row of `states` [rows, 1, d_model] its next token. Returns them, [rows, 1].
  at::Tensor choose(const at::Tensor& states);
  void add_token(Sample& sample, const float* logits, const float* log_probabilities,
                 std::int64_t vocabulary);
  void pass_on(const Generator::Sink& sink);
  // Returns the `tokens` of the samples that go on, and forgets the rows of the others.
  at::Tensor keep_going(const at::Tensor& tokens);
  // Takes the next token of every row, [rows, 1], and returns its state [rows, 1, d_model].
  at::Tensor read(const at::Tensor& tokens);

  const nn::ModelAtLengths& model_;
  const GenerationOptions& options_;
  const Prompt& prompt_;
  nn::GrowingSegment growing_;
  at::Tensor window_;  // the tokens of the window under way [rows, count], where windows slide
  std::vector<Sample> samples_;
  std::vector<std::size_t> rows_;  // the samples that go on, as rows of growing_
  std::size_t shown_ = 0;          // the sample whose tokens are passed on as they come
  std::int64_t position_ = 0;
};

}  // namespace ql::generate::internal
