// Chooses between the fused attention kernel and ATen's operations, and implements attention by
// ATen's operations.

#include "kernels/attention.h"

#include <cmath>

#include "kernels/attention_problem.h"
#include "kernels/autograd.h"
#include "kernels/product.h"
#include "machine/device.h"

namespace ql::kernels {
namespace {

// Autograd records only tensors that are arguments themselves, so the tensors of `input` that may
// have a gradient are passed separately.
struct FusedAttention : torch::autograd::Function<FusedAttention> {
  // Has the fields of an input that are not tensors.
  struct Settings : torch::CustomClassHolder {
    AttentionInput input;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries,
                            const at::Tensor& keys_values, const OptionalTensor& /*positions*/,
                            const OptionalTensor& /*content_bias*/,
                            const OptionalTensor& /*position_bias*/, const AttentionInput& input) {
    AttentionResult result = attention_forward(input, true);
    context->save_for_backward({queries, keys_values, input.positions, input.content_bias,
                                input.position_bias,
                                input.window() > attention::kTileKeys ? result.sums : at::Tensor(),
                                result.normalizers, result.probabilities});
    auto settings = c10::make_intrusive<Settings>();
    settings->input.dropout = input.dropout;
    settings->input.queries_per_mask = input.queries_per_mask;
    settings->input.reach = input.reach;
    settings->input.rounds = input.rounds;
    settings->input.sees_all = input.sees_all;
    context->saved_data["settings"] = at::IValue::make_capsule(std::move(settings));
    return result.sums;
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const variable_list saved = context->get_saved_variables();
    const auto settings = context->saved_data["settings"].toCapsule();
    AttentionInput input = static_cast<const Settings&>(*settings).input;
    input.queries = saved[0];
    input.keys_values = {saved[1]};
    input.positions = saved[2];
    input.content_bias = saved[3];
    input.position_bias = saved[4];
    const AttentionGradients gradients =
        attention_backward(input, {saved[5], saved[6], saved[7]}, outputs[0].contiguous());
    return {gradients.queries,      gradients.keys_values,   gradients.positions,
            gradients.content_bias, gradients.position_bias, at::Tensor()};
  }
};

// `by_row` has at [.., i, k] the score of query i by row k of the position table. The result is a
// view with the score of query i for key j at [.., i, j], where k = segment - 1 - i + j. From one
// query to the next, k decreases by one for the same key, so the view's stride between queries is
// smaller by one. For keys in the future the view reads scores of the next query; the mask hides
// these scores.
at::Tensor by_key(const at::Tensor& by_row) {
  std::vector<std::int64_t> strides = by_row.strides().vec();
  --strides[strides.size() - 2];
  return by_row.as_strided(by_row.sizes(), strides, by_row.storage_offset() + by_row.size(-2) - 1);
}

// Adds position scores to the content scores `scores` [batch, H, segment, window]. `by_row` [H,
// batch, segment, window] has a query's score for each row of the position table.
struct AddByKey : torch::autograd::Function<AddByKey> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& scores,
                            const at::Tensor& by_row) {
    return scores + by_key(by_row).transpose(0, 1);
  }

  // The gradient of by_row has at [.., i, k] the element [.., i, j] of `gradient`, where j = k -
  // (segment - 1) + i. If j is negative, as_strided() reads an element before row i: padding, or an
  // element of row i - 1 for a key that query i - 1 does not see. Both are 0.
  static variable_list backward(AutogradContext* /*context*/, variable_list outputs) {
    const at::Tensor& gradient = outputs[0];
    const std::int64_t batch = gradient.size(0), heads = gradient.size(1);
    const std::int64_t segment = gradient.size(2), window = gradient.size(3);
    const std::int64_t length = segment - 1 + segment * window;
    const at::Tensor padded =
        at::constant_pad_nd(gradient.reshape({batch, heads, segment * window}), {segment - 1, 0})
            .contiguous();
    return {gradient, padded.as_strided({heads, batch, segment, window},
                                        {length, heads * length, window + 1, 1})};
  }
};

at::Tensor join(const std::vector<at::Tensor>& parts) {
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

// Returns all keys and values in the precision of the queries.
at::Tensor join_widened(const AttentionInput& input) {
  return join(input.keys_values).to(input.queries.scalar_type());
}

at::Tensor with_bias(const at::Tensor& queries, const at::Tensor& bias) {
  return bias.defined() ? queries + bias : queries;
}

at::Tensor contiguous(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

// Returns true if a part is contiguous except for the distance between its streams (elements of the
// batch).
bool has_plain_streams(const at::Tensor& part) {
  return part.size(0) == 0 || part.select(0, 0).is_contiguous();
}

// Returns true if rounding saves time: few queries or keys are multiplied before they are packed.
// Batch-invariant products are those of generation, which packs all keys for few queries. Emulation
// saves none, but gives the results of a processor that has the instruction.
bool pays_to_round(const AttentionInput& input) {
  const bool fast =
      QL_NATIVE_PAIRS != 0 || machine::bfloat16_products() == machine::Bfloat16Products::kEmulated;
  return fast && input.window() > kShortWindow && input.queries.size(1) >= kMostTileRows &&
         !BatchInvariant::live();
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
  at::Tensor hidden = distance.lt(0);
  if (reach.dilations.empty()) {
    if (reach.span > 0) hidden = hidden.logical_or(distance.ge(reach.span));
  } else {
    // The tensor is filled element by element: a list on the host would have to be copied to the
    // device, and the host would wait for the copy.
    const at::Tensor step =
        at::empty({static_cast<std::int64_t>(reach.dilations.size()), 1, 1}, options);
    for (std::size_t head = 0; head < reach.dilations.size(); ++head) {
      step.select(0, static_cast<std::int64_t>(head)).fill_(reach.dilations[head]);
    }
    hidden = hidden.logical_or(distance.remainder(step).ne(0));
    if (reach.span > 0) hidden = hidden.logical_or(distance.ge(step * reach.span));
  }
  return at::zeros(hidden.sizes(), options.dtype(at::kFloat))
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

at::Tensor relative_attention(const AttentionInput& input) {
  const bool bounded = input.reach.span > 0 || !input.reach.dilations.empty();
  if (input.sees_all && (bounded || input.positions.defined())) {
    throw std::logic_error("queries that see all keys have neither positions nor bounds");
  }
  if (!machine::uses_kernels(input.queries)) return attention_of_operations(input);
  AttentionInput plain = input;
  plain.rounds = input.rounds && pays_to_round(input);
  if (!is_short(input)) {
    for (at::Tensor& part : plain.keys_values) part = part.to(input.queries.scalar_type());
  }
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

// Returns attention_probabilities(input); `keys` [batch, window, n_head, d_head] are the keys of
// the window.
static at::Tensor probabilities_of(const AttentionInput& input, const at::Tensor& keys) {
  const double scale = 1 / std::sqrt(static_cast<double>(input.queries.size(3)));
  const std::int64_t batch = input.queries.size(0), segment = input.queries.size(1);
  const std::int64_t heads = input.queries.size(2), window = input.window();
  at::Tensor scores = at::matmul(with_bias(input.queries, input.content_bias).transpose(1, 2),
                                 keys.permute({0, 2, 3, 1}));
  if (input.sees_all) return at::softmax(scores * scale, -1);
  const at::Tensor hidden =
      input.hidden.defined() ? input.hidden
                             : attention_mask(segment, window, input.reach, input.queries.device());
  if (input.positions.defined()) {
    const at::Tensor queries = with_bias(input.queries, input.position_bias).permute({2, 0, 1, 3});
    const at::Tensor by_row = at::bmm(queries.reshape({heads, batch * segment, queries.size(3)}),
                                      input.positions.permute({1, 2, 0}));
    scores = AddByKey::apply(scores, by_row.view({heads, batch, segment, window}));
  }
  return at::softmax(at::add(hidden, scores, scale), -1);
}

at::Tensor attention_of_operations(const AttentionInput& input) {
  // The backward pass of one unbind() makes one gradient. The backward passes of two select() calls
  // would make two, each of the full size and padded with zeros.
  const std::vector<at::Tensor> keys_values = join_widened(input).unbind(2);
  at::Tensor probabilities = probabilities_of(input, keys_values[0]);
  if (input.dropout.dropped > 0) {
    std::vector<std::int64_t> shape = probabilities.sizes().vec();
    shape[2] /= input.queries_per_mask;
    at::Tensor kept = draw_kept(input.dropout, shape, probabilities.device());
    if (input.queries_per_mask > 1) kept = kept.repeat_interleave(input.queries_per_mask, 2);
    probabilities = probabilities * (kept.to(probabilities.options()) * input.dropout.factor());
  }
  return at::matmul(probabilities, keys_values[1].transpose(1, 2)).transpose(1, 2);
}

at::Tensor attention_probabilities(const AttentionInput& input) {
  return probabilities_of(input, join_widened(input).select(2, 0));
}

at::Tensor attention_usage(const AttentionInput& input) {
  const at::NoGradGuard no_gradient;
  return attention_probabilities(input).mean(at::IntArrayRef{1, 2});
}

}  // namespace ql::kernels
