#include "nn/attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "nn/attention_kernel.h"

namespace ql::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries,
                            const at::Tensor& keys_values, const at::Tensor& positions,
                            const at::Tensor& content_bias, const at::Tensor& position_bias,
                            const c10::optional<at::Tensor>& probability_mask) {
    const at::Tensor mask = probability_mask.value_or(at::Tensor());
    const AttentionInput input{queries, keys_values, positions, content_bias, position_bias, mask};
    AttentionResult result = attention_forward(input);
    context->save_for_backward({queries, keys_values, positions, content_bias, position_bias});
    context->saved_data["mask"] = mask;
    context->saved_data["probabilities"] = result.probabilities;
    return result.sums;
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const variable_list saved = context->get_saved_variables();
    const AttentionInput input{saved[0], saved[1], saved[2],
                               saved[3], saved[4], context->saved_data["mask"].toTensor()};
    const AttentionGradients gradients = attention_backward(
        input, context->saved_data["probabilities"].toTensor(), outputs[0].contiguous());
    return {gradients.queries,      gradients.keys_values,   gradients.positions,
            gradients.content_bias, gradients.position_bias, at::Tensor()};
  }
};

// scores[.., i, k] by row k of the position table -> scores[.., i, j] by key j, with
// k = segment - 1 - i + j. Keys in the future get another row's number; the mask hides them.
at::Tensor relative_shift(const at::Tensor& by_row) {
  const std::int64_t batch = by_row.size(0), heads = by_row.size(1);
  const std::int64_t segment = by_row.size(2), window = by_row.size(3);
  // One zero column in front makes row i+1 start where row i's key numbering has moved by one.
  at::Tensor padded = at::constant_pad_nd(by_row, {1, 0});
  padded = padded.view({batch, heads, window + 1, segment});
  return padded.narrow(2, 1, window).reshape({batch, heads, segment, window});
}

// True where a query must not see a key: [segment, window], j > m + i.
at::Tensor future_mask(std::int64_t segment, std::int64_t window, const at::Device& device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor query = at::arange(window - segment, window, options).unsqueeze(1);
  return at::arange(window, options).unsqueeze(0).gt(query);
}

}  // namespace

at::Tensor relative_attention(const AttentionInput& input) {
  if (!input.queries.is_cpu()) {
    return attention_of_operations(input);
  }
  const AttentionInput plain{input.queries.contiguous(),       input.keys_values.contiguous(),
                             input.positions.contiguous(),     input.content_bias.contiguous(),
                             input.position_bias.contiguous(), input.probability_mask};
  if (!at::GradMode::is_enabled()) {
    return attention_forward(plain).sums;
  }
  c10::optional<at::Tensor> mask;
  if (plain.probability_mask.defined()) {
    mask = plain.probability_mask;
  }
  return FusedAttention::apply(plain.queries, plain.keys_values, plain.positions,
                               plain.content_bias, plain.position_bias, mask);
}

at::Tensor attention_of_operations(const AttentionInput& input) {
  const std::int64_t segment = input.queries.size(1);
  const std::int64_t window = input.keys_values.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(input.queries.size(3)));
  const at::Tensor keys = input.keys_values.select(2, 0), values = input.keys_values.select(2, 1);

  const at::Tensor content_queries = (input.queries + input.content_bias).transpose(1, 2);
  const at::Tensor position_queries = (input.queries + input.position_bias).transpose(1, 2);
  at::Tensor scores = at::matmul(content_queries, keys.permute({0, 2, 3, 1}));
  scores =
      scores + relative_shift(at::matmul(position_queries, input.positions.permute({1, 2, 0})));
  scores = (scores * scale)
               .masked_fill(future_mask(segment, window, scores.device()),
                            -std::numeric_limits<double>::infinity());
  at::Tensor probabilities = at::softmax(scores, -1);
  if (input.probability_mask.defined()) {
    probabilities = probabilities * input.probability_mask;
  }
  return at::matmul(probabilities, values.transpose(1, 2)).transpose(1, 2);
}

}  // namespace ql::nn
