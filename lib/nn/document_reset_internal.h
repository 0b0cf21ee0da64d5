// Memory that is reset at documents (net/document_reset.h): states that do not belong to the
// document of the segment's first token become zeros. `ages` has for every row how many tokens of
// that document stand before the segment.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/document_reset.h"
#include "nn/memory.h"

namespace ql::nn {

// True [rows, length] for the states of a memory that are to be zeros. Undefined when there are
// none, which is the rule far from the start of a document, and without ages.
at::Tensor forgotten_states(const net::MemoryCover& cover, std::int64_t length,
                            const std::vector<std::int64_t>& ages, const at::Device& device);

// The same on the device of `ages` [rows] int64, without a look at their values: always defined.
at::Tensor forgotten_states(const net::MemoryCover& cover, std::int64_t length,
                            const at::Tensor& ages);

// `states` [rows, length, ...], those that are `forgotten` replaced by `zero`, which broadcasts;
// undefined: by zeros. As they are where `forgotten` is undefined.
at::Tensor replace_forgotten(const at::Tensor& states, const at::Tensor& forgotten,
                             const at::Tensor& zero = {});

// All memories as the step begins with them; one age for every row of the batch, or in their place
// `age_tensor` [rows] int64 on the memories' device.
Memory forget_other_documents(const Memory& memory, const net::Geometry& geometry,
                              const std::vector<std::int64_t>& ages,
                              const at::Tensor& age_tensor = {});

}  // namespace ql::nn
