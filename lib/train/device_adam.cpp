#include "train/device_adam.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>

namespace ql::train {
namespace {

// Parameters begin at multiples of so many numbers, because matrix products on a GPU want aligned
// rows.
constexpr std::int64_t kAlignment = 64;

}  // namespace

DeviceAdam::DeviceAdam(const std::vector<nn::NamedTensor>& parameters, const AdamOptions& options)
    : options_(options) {
  if (parameters.empty()) throw std::invalid_argument("DeviceAdam: no parameters");
  const at::TensorOptions shared = parameters.front().tensor.options().requires_grad(false);
  std::int64_t end = 0, longest = kAlignment;
  for (const nn::NamedTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    if (!tensor.is_floating_point() || tensor.scalar_type() != shared.dtype().toScalarType() ||
        tensor.device() != shared.device()) {
      throw std::invalid_argument("DeviceAdam: " + parameter.name +
                                  " is of another type or on another device than the others");
    }
    const std::int64_t size = tensor.numel();
    const std::int64_t padding = (kAlignment - size % kAlignment) % kAlignment;
    parts_.push_back({parameter, end, size, padding});
    end += size + padding;
    longest = std::max(longest, size);
  }
  weights_ = at::zeros({end}, shared);
  first_ = at::zeros({end}, shared);
  second_ = at::zeros({end}, shared);
  zeros_ = at::zeros({longest}, shared);
  if (options_.weight_decay > 0) {
    decayed_ = at::zeros({end}, shared);
    for (const Part& part : parts_) {
      if (decays(part.parameter.name, options_.decay_on)) part_of(decayed_, part).fill_(1);
    }
  }
  steps_ = at::zeros({}, shared.dtype(at::kDouble));
  const at::NoGradGuard no_gradient;
  for (Part& part : parts_) {
    const at::Tensor place = part_of(weights_, part);
    place.copy_(part.parameter.tensor);
    part.parameter.tensor.set_data(place);
  }
}

at::Tensor DeviceAdam::part_of(const at::Tensor& all, const Part& part) const {
  return all.narrow(0, part.begin, part.size).view(part.parameter.tensor.sizes());
}

at::Tensor DeviceAdam::take_gradient() {
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> gradients;
  for (Part& part : parts_) {
    at::Tensor& gradient = part.parameter.tensor.mutable_grad();
    gradients.push_back(gradient.defined() ? gradient.reshape({part.size})
                                           : zeros_.narrow(0, 0, part.size));
    if (part.padding > 0) gradients.push_back(zeros_.narrow(0, 0, part.padding));
    gradient.reset();
  }
  return at::cat(gradients);
}

void DeviceAdam::step(const at::Tensor& gradient, const at::Tensor& gradient_scale,
                      const at::Tensor& learning_rate, const at::Tensor& applies) {
  const at::NoGradGuard no_gradient;
  const at::TensorOptions options = first_.options();
  // 0 * NaN is NaN, so an update that does not apply needs a gradient of zeros. A factor of 0 is
  // not enough.
  const at::Tensor zero = at::zeros({}, options);
  const at::Tensor slope = at::where(applies, gradient * gradient_scale.to(options), zero);
  // Computes moment - (1 - beta) * moment as the kernel does: beta itself may be 1 in float32.
  const auto decay = [&](at::Tensor& moment, double beta) -> at::Tensor& {
    return moment.addcmul_(moment, at::where(applies, at::full({}, 1 - beta, options), zero), -1);
  };
  decay(first_, options_.beta1).add_(slope, 1 - options_.beta1);
  decay(second_, options_.beta2).addcmul_(slope, slope, 1 - options_.beta2);
  const at::Tensor steps = steps_ + 1;
  const auto correction = [&](double beta) { return 1 - at::pow(beta, steps); };
  const at::Tensor divisor =
      second_.sqrt().div_(correction(options_.beta2).sqrt().to(options)).add_(options_.epsilon);
  const at::Tensor size =
      at::where(applies, (learning_rate / correction(options_.beta1)).to(options), zero);
  at::Tensor change = (first_ * size).div_(divisor);
  if (decayed_.defined()) {
    const at::Tensor share =
        at::where(applies, (learning_rate * options_.weight_decay).to(options), zero);
    change.add_((weights_ * decayed_).mul_(share));
  }
  weights_.sub_(change);
  steps_.add_(applies);
}

std::int64_t DeviceAdam::steps() const { return static_cast<std::int64_t>(steps_.item<double>()); }

void DeviceAdam::set_steps(std::int64_t steps) { steps_.fill_(static_cast<double>(steps)); }

std::vector<nn::NamedTensor> DeviceAdam::moments() const {
  std::vector<nn::NamedTensor> moments;
  for (const Part& part : parts_) {
    moments.push_back({"first_moment." + part.parameter.name, part_of(first_, part)});
  }
  for (const Part& part : parts_) {
    moments.push_back({"second_moment." + part.parameter.name, part_of(second_, part)});
  }
  return moments;
}

}  // namespace ql::train
