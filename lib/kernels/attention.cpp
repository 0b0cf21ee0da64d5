// Chooses between the fused attention and ATen's operations, and computes by the latter.

#include "kernels/attention.h"

#include <cmath>

#include "kernels/attention_problem.h"
#include "kernels/autograd.h"
#include "machine/device.h"

namespace ql::kernels {
namespace {

// Autograd has to see the tensors of the input that may have a gradient as arguments.
struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries,
                            const at::Tensor& keys_values, const OptionalTensor& /*positions*/,
                            const OptionalTensor& /*content_bias*/,
                            const OptionalTensor& /*position_bias*/, const AttentionInput& input) {
    const AttentionResult result = attention_forward(input, true);
    context->save_for_backward(
        {queries, keys_values, input.positions, input.content_bias, input.position_bias});
    context->saved_data["kept"] = input.probability_kept;
    context->saved_data["kept_factor"] = input.kept_factor;
    context->saved_data["probabilities"] = result.probabilities;
    context->saved_data["span"] = input.reach.span;
    context->saved_data["dilations"] = input.reach.dilations;
    context->saved_data["sees_all"] = input.sees_all;
    return result.sums;
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const variable_list saved = context->get_saved_variables();
    AttentionInput input{
        saved[0],
        {saved[1]},
        saved[2],
        saved[3],
        saved[4],
        context->saved_data["kept"].toTensor(),
        context->saved_data["kept_factor"].toDouble(),
        {context->saved_data["span"].toInt(), context->saved_data["dilations"].toIntVector()}};
    input.sees_all = context->saved_data["sees_all"].toBool();
    const AttentionGradients gradients = attention_backward(
        input, context->saved_data["probabilities"].toTensor(), outputs[0].contiguous());
    return {gradients.queries,      gradients.keys_values,   gradients.positions,
            gradients.content_bias, gradients.position_bias, at::Tensor()};
  }
};

// Turns scores[.., i, k] by row k of the position table into scores[.., i, j] by key j, with k =
// segment - 1 - i + j. Keys in the future get another row's score; the mask hides them.
at::Tensor relative_shift(const at::Tensor& by_row) {
  const std::int64_t batch = by_row.size(0), heads = by_row.size(1);
  const std::int64_t segment = by_row.size(2), window = by_row.size(3);
  // One zero column in front makes row i+1 start where row i's key numbering has moved by one.
  at::Tensor padded = at::constant_pad_nd(by_row, {1, 0});
  padded = padded.view({batch, heads, window + 1, segment});
  return padded.narrow(2, 1, window).reshape({batch, heads, segment, window});
}

at::Tensor join(const std::vector<at::Tensor>& parts) {
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

at::Tensor with_bias(const at::Tensor& queries, const at::Tensor& bias) {
  return (bias.defined() ? queries + bias : queries).transpose(1, 2);
}

at::Tensor contiguous(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

// Returns true if a part is contiguous except for the distance between its streams.
bool has_plain_streams(const at::Tensor& part) {
  return part.size(0) == 0 || part.select(0, 0).is_contiguous();
}

}  // namespace

std::int64_t AttentionInput::window() const {
  std::int64_t length = 0;
  for (const at::Tensor& part : keys_values) length += part.size(1);
  return length;
}

at::Tensor attention_mask(std::int64_t segment, std::int64_t window,
                          const net::AttentionWindow& reach, const at::Device& device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor query = at::arange(window - segment, window, options).unsqueeze(1);
  const at::Tensor distance = query - at::arange(window, options).unsqueeze(0);
  const at::Tensor future = distance.lt(0);
  if (reach.dilations.empty()) {
    return reach.span > 0 ? future.logical_or(distance.ge(reach.span)) : future;
  }
  // The tensor is filled element by element: a list on the host would have to be copied to the
  // device, and the host would wait for the copy.
  const at::Tensor step =
      at::empty({static_cast<std::int64_t>(reach.dilations.size()), 1, 1}, options);
  for (std::size_t head = 0; head < reach.dilations.size(); ++head) {
    step.select(0, static_cast<std::int64_t>(head)).fill_(reach.dilations[head]);
  }
  const at::Tensor hidden = future.logical_or(distance.remainder(step).ne(0));
  return reach.span > 0 ? hidden.logical_or(distance.ge(step * reach.span)) : hidden;
}

at::Tensor relative_attention(const AttentionInput& input) {
  const bool bounded = input.reach.span > 0 || !input.reach.dilations.empty();
  if (input.sees_all && (bounded || input.positions.defined())) {
    throw std::logic_error("queries that see all keys have neither positions nor bounds");
  }
  if (input.positions.defined() && input.positions.dim() == 2 && input.positions.requires_grad()) {
    throw std::logic_error("scores of distances have no gradient");
  }
  if (!machine::uses_kernels(input.queries)) return attention_of_operations(input);
  AttentionInput plain = input;
  plain.queries = input.queries.contiguous();
  plain.positions = contiguous(input.positions);
  plain.content_bias = contiguous(input.content_bias);
  plain.position_bias = contiguous(input.position_bias);
  if (!at::GradMode::is_enabled()) {
    for (at::Tensor& part : plain.keys_values) {
      part = has_plain_streams(part) ? part : part.contiguous();
    }
    return attention_forward(plain, false).sums;
  }
  plain.keys_values = {join(plain.keys_values).contiguous()};
  return FusedAttention::apply(
      plain.queries, plain.keys_values.front(), optional_tensor(plain.positions),
      optional_tensor(plain.content_bias), optional_tensor(plain.position_bias), plain);
}

at::Tensor attention_of_operations(const AttentionInput& input) {
  const at::Tensor values = join(input.keys_values).select(2, 1);
  at::Tensor probabilities = attention_probabilities(input);
  if (input.probability_kept.defined()) {
    probabilities =
        probabilities * input.probability_kept.to(probabilities.options()) * input.kept_factor;
  }
  return at::matmul(probabilities, values.transpose(1, 2)).transpose(1, 2);
}

at::Tensor attention_probabilities(const AttentionInput& input) {
  const double scale = 1 / std::sqrt(static_cast<double>(input.queries.size(3)));
  const at::Tensor keys = join(input.keys_values).select(2, 0);
  at::Tensor scores =
      at::matmul(with_bias(input.queries, input.content_bias), keys.permute({0, 2, 3, 1}));
  const std::int64_t kind = input.positions.defined() ? input.positions.dim() : 0;
  if (kind == 3) {
    scores = scores + relative_shift(at::matmul(with_bias(input.queries, input.position_bias),
                                                input.positions.permute({1, 2, 0})));
  }
  scores = scores * scale;
  if (kind == 2) {
    const std::int64_t heads = scores.size(1), segment = scores.size(2), window = scores.size(3);
    scores = scores +
             relative_shift(input.positions.t().unsqueeze(1).expand({1, heads, segment, window}));
  }
  if (input.sees_all) return at::softmax(scores, -1);
  const at::Tensor hidden = input.hidden.defined()
                                ? input.hidden
                                : attention_mask(input.queries.size(1), input.window(), input.reach,
                                                 input.queries.device());
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1);
}

at::Tensor attention_usage(const AttentionInput& input) {
  const at::NoGradGuard no_gradient;
  return attention_probabilities(input).mean(at::IntArrayRef{1, 2});
}

}  // namespace ql::kernels
