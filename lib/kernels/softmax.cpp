#include "kernels/softmax.h"

#include <utility>

#include "kernels/autograd.h"
#include "kernels/softmax_clusters.h"
#include "machine/device.h"

namespace ql::kernels {
namespace {

// Lists the tensors that may have a gradient, undefined ones too, in a fixed order.
variable_list all_of(const at::Tensor& states, const SoftmaxWeights& weights) {
  variable_list all = {states, weights.cluster_weight, weights.cluster_bias};
  for (const auto* list : {&weights.weights, &weights.biases, &weights.projections}) {
    all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

struct Problem {
  at::Tensor states;
  SoftmaxWeights weights;
  at::Tensor targets;
  double factor = 1;    // of every loss
  bool summed = false;  // the result is the sum of the losses times the factor
};

// The forward pass leaves this to the backward pass.
struct Kept : torch::CustomClassHolder {
  Problem problem;
  variable_list gradients;  // of the losses times the factor; the first backward pass takes them
};

variable_list gradients_of(const Problem& problem, const at::Tensor& factors, at::Tensor* losses) {
  SoftmaxGradients gradients;
  const at::Tensor found =
      clustered_losses(problem.states, problem.weights, problem.targets, factors, gradients);
  if (losses != nullptr) *losses = found;
  return all_of(gradients.states, gradients.weights);
}

at::Tensor equal_factors(const Problem& problem) {
  return at::full({problem.states.size(0)}, problem.factor, problem.states.options());
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  // `variables` are the problem's tensors that are defined. Autograd has to see them as arguments.
  static at::Tensor forward(AutogradContext* context, at::TensorList variables,
                            const Problem& problem) {
    auto kept = c10::make_intrusive<Kept>();
    kept->problem = problem;
    at::Tensor losses;
    kept->gradients = gradients_of(problem, equal_factors(problem), &losses);
    // Saving them has their versions checked before the gradients are computed again.
    context->save_for_backward(variables.vec());
    context->saved_data["kept"] =
        c10::IValue::make_capsule(c10::intrusive_ptr<torch::CustomClassHolder>(std::move(kept)));
    return problem.summed ? losses.sum() * problem.factor : losses;
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto holder = context->saved_data["kept"].toCapsule();
    Kept& kept = static_cast<Kept&>(*holder);
    const at::Tensor factors = outputs[0].reshape({-1}).contiguous();
    const at::Tensor first = factors.select(0, 0);
    const bool equal = kept.problem.summed || factors.eq(first).all().item<bool>();
    variable_list gradients = std::move(kept.gradients);
    kept.gradients.clear();
    if (gradients.empty() || !equal) {
      gradients.clear();
      context->get_saved_variables();
      gradients =
          gradients_of(kept.problem, equal ? equal_factors(kept.problem) : factors, nullptr);
    }
    variable_list result;
    const variable_list inputs = all_of(kept.problem.states, kept.problem.weights);
    const bool scaled = equal && first.item<double>() != 1;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined()) continue;
      if (scaled && gradients[i].defined()) gradients[i].mul_(first);
      // A moved gradient has one holder, which need not copy it.
      result.push_back(std::move(gradients[i]));
    }
    result.emplace_back();
    return result;
  }
};

at::Tensor run(const Problem& problem) {
  const variable_list all = all_of(problem.states, problem.weights);
  variable_list variables;
  bool with_gradients = false;
  for (const at::Tensor& tensor : all) {
    if (tensor.defined()) {
      variables.push_back(tensor);
      with_gradients = with_gradients || (at::GradMode::is_enabled() && tensor.requires_grad());
    }
  }
  if (machine::uses_kernels(problem.states) && with_gradients) {
    return CrossEntropy::apply(at::TensorList(variables), problem);
  }
  SoftmaxGradients none;
  const at::Tensor losses =
      machine::uses_kernels(problem.states)
          ? clustered_losses(problem.states, problem.weights, problem.targets, at::Tensor(), none)
          : composed_losses(problem.states, problem.weights, problem.targets);
  return problem.summed ? losses.sum() * problem.factor : losses;
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& states, const SoftmaxWeights& weights,
                         const at::Tensor& targets) {
  return run({states, weights, targets, 1, false});
}

at::Tensor cross_entropy_sum(const at::Tensor& states, const SoftmaxWeights& weights,
                             const at::Tensor& targets, double factor) {
  return run({states, weights, targets, factor, true});
}

at::Tensor cross_entropy(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets) {
  SoftmaxWeights weights;
  weights.ends = {weight.size(0)};
  weights.weights = {weight};
  weights.biases = {bias};
  weights.projections = {at::Tensor()};
  return cross_entropy(states, weights, targets);
}

}  // namespace ql::kernels
