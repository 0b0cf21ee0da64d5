// Updates blocks of weights, selects the parameters that weight decay acts on, and adapts the
// factor that scales the loss.

#include "train/adam.h"

#include <ATen/Dispatch.h>

#include <cmath>

#include "kernels/vector.h"
#include "machine/threads.h"

namespace ql::train {

namespace {

// Holds the constants of one update, in the tensors' own precision. The t-th update does the
// following, where g is the gradient times gradient_scale, and m and v are the moments:
//
//   m = beta1 * m + (1 - beta1) * g        v = beta2 * v + (1 - beta2) * g^2
//   weight -= rate * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay * weight
//
// The struct keeps 1 - beta instead of beta, because rounding beta to float32 loses digits of
// 1 - beta: a beta of 0.999999 keeps few of them, and a beta of 0.99999999 becomes 1. (With the
// latter beta, a float32 moment m still does not decay, because m - 1e-8 * m is rounded to m.)
template <typename Scalar>
struct Update {
  Scalar one_minus_beta1, one_minus_beta2, gradient_scale, step_size, second_correction, epsilon;
  Scalar decay;
};

template <typename Scalar>
QL_VECTOR_BODY void update_body(Update<Scalar> with, Scalar* __restrict weight,
                                const Scalar* __restrict gradient, Scalar* __restrict first,
                                Scalar* __restrict second, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Scalar g = gradient[i] * with.gradient_scale;
    first[i] = first[i] - with.one_minus_beta1 * first[i] + with.one_minus_beta1 * g;
    second[i] = second[i] - with.one_minus_beta2 * second[i] + with.one_minus_beta2 * g * g;
    weight[i] -=
        with.step_size * first[i] / (std::sqrt(second[i]) * with.second_correction + with.epsilon) +
        with.decay * weight[i];
  }
}

QL_VECTOR_KERNEL(update)

}  // namespace

bool decays(const std::string& name, DecayOn on) {
  if (on == DecayOn::kAll) return true;
  const auto has = [&name](const char* part) { return name.find(part) != std::string::npos; };
  return !has("bias") && !has("layer_norm.") && !has("word_emb.emb_layers.") && !has(".r_emb");
}

Adam::Adam(std::vector<nn::NamedTensor> parameters, const AdamOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (const nn::NamedTensor& parameter : parameters_) {
    const at::Tensor& tensor = parameter.tensor;
    if (!tensor.is_contiguous() || !tensor.device().is_cpu() || !tensor.is_floating_point()) {
      throw std::invalid_argument("Adam: " + parameter.name +
                                  " is not a contiguous floating-point tensor on the CPU");
    }
  }
  for (const char* moment : {"first_moment.", "second_moment."}) {
    for (const auto& [name, tensor] : parameters_) {
      moments_.push_back(
          {moment + name, at::zeros(tensor.sizes(), tensor.options().requires_grad(false))});
    }
  }
}

void Adam::step(double learning_rate, double gradient_scale) {
  ++steps_;
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps_));
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    at::Tensor& parameter = parameters_[p].tensor;
    const at::Tensor& first_moment = moments_[p].tensor;
    const at::Tensor& second_moment = moments_[parameters_.size() + p].tensor;
    const at::Tensor gradient = parameter.grad().defined()
                                    ? parameter.grad().contiguous()
                                    : at::zeros(parameter.sizes(), first_moment.options());
    const std::int64_t elements = parameter.numel();
    const double decay = decays(parameters_[p].name, options_.decay_on) ? options_.weight_decay : 0;
    AT_DISPATCH_FLOATING_TYPES(parameter.scalar_type(), "adam", [&] {
      const Update<scalar_t> constants{static_cast<scalar_t>(1 - options_.beta1),
                                       static_cast<scalar_t>(1 - options_.beta2),
                                       static_cast<scalar_t>(gradient_scale),
                                       static_cast<scalar_t>(learning_rate / correction1),
                                       static_cast<scalar_t>(1 / std::sqrt(correction2)),
                                       static_cast<scalar_t>(options_.epsilon),
                                       static_cast<scalar_t>(learning_rate * decay)};
      scalar_t* weight = parameter.data_ptr<scalar_t>();
      const scalar_t* slope = gradient.data_ptr<scalar_t>();
      scalar_t* first = first_moment.data_ptr<scalar_t>();
      scalar_t* second = second_moment.data_ptr<scalar_t>();
      const auto update_blocks = [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t start = begin * kBlock;
        const std::int64_t count = std::min(end * kBlock, elements) - start;
        update(constants, weight + start, slope + start, first + start, second + start, count);
      };
      // The weight, its gradient and its two moments are read; all except the gradient are written.
      const double bytes = 7 * static_cast<double>(parameter.nbytes());
      machine::for_parts(block_count(elements), machine::microseconds_of(0, bytes), update_blocks);
    });
    parameter.mutable_grad().reset();
  }
}

double clip_scale(double norm, double clip) { return clip > 0 && norm > clip ? clip / norm : 1.0; }

LossScale::LossScale(bool adapts, const at::Device& device)
    : adapts_(adapts), state_(at::zeros({2}, at::TensorOptions(at::kFloat).device(device))) {
  state_.select(0, 0).fill_(adapts ? kFirst : 1);
}

void LossScale::update(const at::Tensor& finite) {
  if (!adapts_) return;
  const at::Tensor old = factor(), steps = state_.select(0, 1) + 1;
  const at::Tensor doubles = finite.logical_and(steps.ge(kStepsToDouble));
  const at::Tensor raised = at::where(doubles, (old * 2).clamp_max(kLargest), old);
  const at::Tensor next = at::where(finite, raised, (old / 2).clamp_min(1));
  const at::Tensor stays = finite.logical_and(doubles.logical_not());
  state_.copy_(at::stack({next, steps * stays}));
}

}  // namespace ql::train
