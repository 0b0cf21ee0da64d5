#include "train/estimate.h"

namespace ql::train {
namespace {

constexpr std::int64_t kFloat = 4;

// Numbers that one layer keeps for the backward pass, for one row of the batch.
std::int64_t layer_numbers(const net::Network& network, const net::ScaleGeometry& scale) {
  const std::int64_t heads = network.n_head, d_heads = heads * network.d_head;
  const std::int64_t window = scale.window(), segment = scale.segment;
  // Of the window: its states, normalized, keys and values. Of scores: as computed, shifted,
  // softmax, dropout's mask. Of the segment: queries thrice, the residuals and their dropout, and
  // the inner states before and after dropout with the mask.
  return window * (2 * network.d_model + 2 * d_heads) + 4 * heads * segment * window +
         segment * (3 * d_heads + 8 * network.d_model + 3 * network.d_inner);
}

}  // namespace

MemoryEstimate estimate_memory(const net::Network& network, std::int64_t parameter_count,
                               std::int64_t batch) {
  const net::Geometry geometry = net::make_geometry(network, network.lengths);
  std::int64_t row = 0;
  for (const net::ScaleGeometry& scale : geometry.scales) {
    row += scale.layers * layer_numbers(network, scale);
  }
  row += geometry.output.layers * layer_numbers(network, geometry.output);
  // Logits, their softmax and its gradient.
  row += 3 * geometry.lengths.segment * network.vocab_size;

  MemoryEstimate estimate;
  estimate.parameters = 4 * parameter_count * kFloat;
  estimate.activations = batch * row * kFloat;
  return estimate;
}

}  // namespace ql::train
