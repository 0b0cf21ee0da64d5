// Runs Adam on tensors that a test makes, and takes a gradient apart.
#pragma once

#include <string>
#include <vector>

#include "train/adam.h"
#include "train/gradients.h"

namespace ql::test {

// Runs one update with the gradients of the parameters, in their order; undefined ones count as
// zeros.
inline void step(train::Adam& adam, const nn::FlatTensors& parameters,
                 const std::vector<at::Tensor>& gradients, double learning_rate, double scale,
                 bool applies = true) {
  const auto number = [&](double value, at::ScalarType type) {
    return at::scalar_tensor(value, parameters.all.options().dtype(type));
  };
  adam.step({train::concatenate(parameters, gradients)}, number(scale, at::kDouble),
            number(learning_rate, at::kDouble), number(applies ? 1 : 0, at::kBool));
}

// Returns the gradient of each parameter.
inline std::vector<at::Tensor> by_parameter(const nn::FlatTensors& parameters,
                                            const train::Gradient& gradient) {
  const at::Tensor all = at::empty_like(parameters.all);
  for (const train::GradientRange& range : gradient) {
    all.narrow(0, range.begin, range.values.numel()).copy_(range.values);
  }
  std::vector<at::Tensor> parts;
  for (const nn::NamedTensor& parameter : parameters.named) {
    parts.push_back(nn::part_of(all, parameter.tensor));
  }
  return parts;
}

}  // namespace ql::test
