// Implements Adam by a kernel for blocks of weights, and by ATen's operations, and selects the
// parameters that weight decay acts on.

#include "train/adam.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <cmath>

#include "kernels/vector.h"
#include "machine/threads.h"

// ATen's fused kernel reads and writes weights and moments only once. From LibTorch 2.3 on, it
// accepts a learning rate on the device.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define QL_FUSED_ADAM
#endif

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
  Scalar one_minus_beta1, one_minus_beta2, gradient_scale, step_size, second_factor, epsilon;
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
        with.step_size * first[i] / (std::sqrt(second[i]) * with.second_factor + with.epsilon) +
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

Adam::Adam(nn::FlatTensors parameters, const AdamOptions& options, bool by_kernel)
    : parameters_(std::move(parameters)),
      options_(options),
      by_kernel_(by_kernel),
      blocks_(blocks_of(parameters_)) {
  first_ = at::zeros_like(parameters_.all);
  second_ = at::zeros_like(parameters_.all);
  for (const auto& [moment, all] :
       {std::pair("first_moment.", first_), std::pair("second_moment.", second_)}) {
    for (const nn::NamedTensor& parameter : parameters_.named) {
      moments_.push_back({moment + parameter.name, nn::part_of(all, parameter.tensor)});
    }
  }
  if (!by_kernel_ && options_.weight_decay > 0) {
    decayed_ = at::zeros_like(parameters_.all);
    for (const nn::NamedTensor& parameter : parameters_.named) {
      if (decays(parameter.name, options_.decay_on)) {
        nn::part_of(decayed_, parameter.tensor).fill_(1);
      }
    }
  }
  updates_ = at::zeros({}, parameters_.all.options().dtype(at::kDouble));
}

void Adam::step(const Gradient& gradient, const at::Tensor& gradient_scale,
                const at::Tensor& learning_rate, const at::Tensor& applies) {
  const at::NoGradGuard no_gradient;
  if (!by_kernel_) {
    step_by_operations(gradient.front().values, gradient_scale, learning_rate, applies);
  } else if (applies.item<bool>()) {
    step_by_kernel(gradient, gradient_scale.item<double>(), learning_rate.item<double>());
  }
  updates_.add_(applies);
}

void Adam::step_by_kernel(const Gradient& gradient, double gradient_scale, double learning_rate) {
  const auto number = static_cast<double>(updates() + 1);
  const double correction1 = 1 - std::pow(options_.beta1, number);
  const double correction2 = 1 - std::pow(options_.beta2, number);
  std::vector<double> decay;  // of each parameter
  for (const nn::NamedTensor& parameter : parameters_.named) {
    const bool acts = decays(parameter.name, options_.decay_on);
    decay.push_back(acts ? learning_rate * options_.weight_decay : 0);
  }
  const at::Tensor& weights = parameters_.all;
  AT_DISPATCH_FLOATING_TYPES(weights.scalar_type(), "adam", [&] {
    const Update<scalar_t> constants{static_cast<scalar_t>(1 - options_.beta1),
                                     static_cast<scalar_t>(1 - options_.beta2),
                                     static_cast<scalar_t>(gradient_scale),
                                     static_cast<scalar_t>(learning_rate / correction1),
                                     static_cast<scalar_t>(1 / std::sqrt(correction2)),
                                     static_cast<scalar_t>(options_.epsilon),
                                     0};
    auto* weight = weights.data_ptr<scalar_t>();
    const std::vector<const scalar_t*> slopes = places_of<scalar_t>(blocks_, gradient);
    auto *first = first_.data_ptr<scalar_t>(), *second = second_.data_ptr<scalar_t>();
    const auto update_blocks = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Block& block = blocks_[static_cast<std::size_t>(i)];
        Update<scalar_t> of_block = constants;
        of_block.decay = static_cast<scalar_t>(decay[block.parameter]);
        update(of_block, weight + block.begin, slopes[static_cast<std::size_t>(i)],
               first + block.begin, second + block.begin, block.count);
      }
    };
    // The weight, its gradient and its two moments are read; all except the gradient are written.
    const double bytes = 7 * static_cast<double>(weights.nbytes());
    machine::for_parts(static_cast<std::int64_t>(blocks_.size()),
                       machine::microseconds_of(0, bytes), update_blocks);
  });
}

void Adam::step_by_operations(const at::Tensor& gradient, const at::Tensor& gradient_scale,
                              const at::Tensor& learning_rate, const at::Tensor& applies) {
  at::Tensor& weights = parameters_.all;
  const at::TensorOptions options = first_.options();
#ifdef QL_FUSED_ADAM
  // The fused kernel may compute in float32, in which no beta may round to 1.
  const auto below_one = [](double beta) { return static_cast<float>(beta) < 1; };
  if (weights.is_cuda() && weights.scalar_type() == at::kFloat && !decayed_.defined() &&
      below_one(options_.beta1) && below_one(options_.beta2)) {
    at::_fused_adam_(weights, gradient, first_, second_, {}, (updates_ + 1).to(at::kFloat),
                     learning_rate.to(at::kFloat), options_.beta1, options_.beta2,
                     /*weight_decay=*/0, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                     gradient_scale.reciprocal().to(at::kFloat),
                     applies.logical_not().to(at::kFloat));
    return;
  }
#endif
  // 0 * NaN is NaN, so a skipped update needs a gradient of zeros. A factor of 0 is not enough.
  const at::Tensor zero = at::zeros({}, options);
  const at::Tensor slope = at::where(applies, gradient * gradient_scale.to(options), zero);
  // Computes moment - (1 - beta) * moment, as the kernel does: beta itself may be 1 in float32.
  const auto shrink = [&](at::Tensor& moment, double beta) -> at::Tensor& {
    return moment.addcmul_(moment, at::where(applies, at::full({}, 1 - beta, options), zero), -1);
  };
  shrink(first_, options_.beta1).add_(slope, 1 - options_.beta1);
  shrink(second_, options_.beta2).addcmul_(slope, slope, 1 - options_.beta2);
  const at::Tensor number = updates_ + 1;
  const auto correction = [&](double beta) { return 1 - at::pow(beta, number); };
  const at::Tensor divisor =
      second_.sqrt().div_(correction(options_.beta2).sqrt().to(options)).add_(options_.epsilon);
  const at::Tensor size =
      at::where(applies, (learning_rate / correction(options_.beta1)).to(options), zero);
  at::Tensor change = (first_ * size).div_(divisor);
  if (decayed_.defined()) {
    const at::Tensor share =
        at::where(applies, (learning_rate * options_.weight_decay).to(options), zero);
    change.add_((weights * decayed_).mul_(share));
  }
  weights.sub_(change);
}

std::int64_t Adam::updates() const { return static_cast<std::int64_t>(updates_.item<double>()); }

void Adam::set_updates(std::int64_t updates) { updates_.fill_(static_cast<double>(updates)); }

}  // namespace ql::train
