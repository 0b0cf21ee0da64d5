// Reads sequences of tokens that end in their first segment, side by side.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/model_at_lengths.h"
#include "shard/token_stream.h"

namespace ql::eval {

// A sequence of 1 to `segment` tokens, which begins with an empty memory.
struct ShortSequence {
  const std::int64_t* inputs = nullptr;
  std::int64_t length = 0;
  // The states of the inputs from number `first` on are wanted, in consecutive rows from `row` on.
  std::int64_t first = 0, row = 0;
};

// Puts the states of the sequences into the rows of `states` [rows, d_model]. Only the sequences'
// own tokens are computed, in pieces of work (machine/threads.h). If there is a `begin`, all
// sequences begin with it, and its keys and values are computed once.
void read_side_by_side(const nn::ModelAtLengths& model, std::optional<shard::TokenId> begin,
                       std::vector<ShortSequence> sequences, at::Tensor& states);

}  // namespace ql::eval
