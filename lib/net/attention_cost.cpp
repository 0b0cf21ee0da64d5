#include "net/attention_cost.h"

#include <algorithm>
#include <stdexcept>

namespace ql::net {
namespace {

// The sum of i / divisor, rounded down, over 0 <= i < count.
double sum_of_quotients(std::int64_t count, std::int64_t divisor) {
  const std::int64_t quotient = count / divisor, rest = count % divisor;
  const auto whole = static_cast<double>(quotient);
  return static_cast<double>(divisor) * whole * (whole - 1) / 2 + whole * static_cast<double>(rest);
}

// Keys that the queries of a segment see together, on the average over the heads. A query stands at
// the place of each of its keys_per_state keys, though only the result at the last one is used.
double seen_keys(const Network& network, const Stage& input) {
  const auto segment = static_cast<double>(input.segment_keys());
  const std::int64_t memory = input.memory + input.compressed_memory;
  if (input.span == 0) return segment * static_cast<double>(memory) + segment * (segment + 1) / 2;
  std::vector<std::int64_t> dilations = network.attention_dilation;
  dilations.resize(std::max<std::size_t>(1, dilations.size()), 1);
  double keys = 0;
  for (const std::int64_t dilation : dilations) {
    // Query i reaches (memory + i) / dilation + 1 keys, from `full` on no more than the span.
    const std::int64_t full =
        std::clamp<std::int64_t>((input.span - 1) * dilation - memory, 0, input.segment);
    keys += sum_of_quotients(memory + full, dilation) - sum_of_quotients(memory, dilation) +
            static_cast<double>(full);
    keys += static_cast<double>(input.segment - full) * static_cast<double>(input.span);
  }
  return keys / static_cast<double>(dilations.size());
}

// Content scores, position scores and weighted values; the scores of all pairs are held, in
// training in whole vectors of 64 bytes.
AttentionCost softmax_cost(const Network& network, const Stage& input) {
  const double factors = network.encoding == Encoding::kAbsolute ? 2 : 3;
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  const auto queries = static_cast<double>(network.n_head * input.segment_keys());
  const std::int64_t whole_vectors = (input.window() + 15) / 16 * 16;
  return {factors * seen_keys(network, input) * d_heads,
          queries * static_cast<double>(whole_vectors), 0,
          queries * static_cast<double>(input.window())};
}

// Every state of the window adds its key and value to a matrix, every query reads it; scores are
// those within the blocks, however long the window is. Training keeps keys before and after the
// feature map and in the order of the products, values in that order; the same of queries, which
// are in three products, and the quotient; the sums before each block. Evaluation has the keys
// twice more, on their way to features, and the values in order.
AttentionCost linear_cost(const Network& network, const Stage& input) {
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  const std::int64_t window = input.window(), segment = input.segment_keys();
  const double scores = static_cast<double>(network.n_head * segment) *
                        static_cast<double>(std::min(segment, kLinearBlock));
  const std::int64_t blocks = (segment + kLinearBlock - 1) / kLinearBlock;
  return {static_cast<double>((window + segment) * network.d_head) * d_heads, scores,
          d_heads * static_cast<double>(4 * window + 6 * segment + blocks * network.d_head),
          scores + 3 * static_cast<double>(window) * d_heads};
}

}  // namespace

AttentionCost attention_cost(const Network& network, const Stage& input) {
  switch (network.attention) {
    case Attention::kSoftmax:
      return softmax_cost(network, input);
    case Attention::kLinear:
      return linear_cost(network, input);
  }
  throw std::logic_error("not an attention");
}

}  // namespace ql::net
