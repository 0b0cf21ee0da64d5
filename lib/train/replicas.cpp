#include "train/replicas.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace ql::train {

struct Replicas::Replica {
  Replica(const nn::Model& original, std::size_t the_slice, GradientExchange& the_exchange)
      : model(original.network(), original.options()),
        at_lengths(model, model.network().lengths),
        slice(the_slice),
        exchange(the_exchange),
        is_put(model.parameters().size()) {
    for (std::size_t index = 0; index < model.parameters().size(); ++index) {
      const at::Tensor& tensor = model.parameters()[index].tensor;
      tensor.set_data(original.parameters()[index].tensor.detach());
      // The tensor itself does not keep alive the node that accumulates its gradient.
      accumulators.push_back(torch::autograd::impl::grad_accumulator(tensor));
      accumulators.back()->add_post_hook(std::make_unique<Hook>(*this, index));
    }
  }

  // The hook is called when the gradient of a parameter has been added to those of earlier passes.
  struct Hook : torch::autograd::FunctionPostHook {
    Hook(Replica& the_replica, std::size_t the_index) : replica(the_replica), index(the_index) {}
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& /*inputs*/) override {
      if (replica.last_pass) replica.put(index);
      return outputs;
    }
    Replica& replica;
    std::size_t index;
  };

  void put(std::size_t index) {
    exchange.put(slice, index, model.parameters()[index].tensor.grad());
    is_put[index] = 1;
  }

  nn::Model model;
  nn::ModelAtLengths at_lengths;
  std::size_t slice;
  GradientExchange& exchange;
  std::vector<char> is_put;  // by parameter; several threads write to several of them
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
  bool last_pass = false;
};

Replicas::Replicas(const nn::Model& model, std::size_t slices, GradientExchange& exchange) {
  for (std::size_t slice = 0; slice < slices; ++slice) {
    replicas_.push_back(std::make_unique<Replica>(model, slice, exchange));
  }
}

Replicas::~Replicas() = default;

const nn::ModelAtLengths& Replicas::of(std::size_t slice) const {
  return replicas_[slice]->at_lengths;
}

void Replicas::backward(std::size_t slice, const at::Tensor& loss, bool last_pass) {
  Replica& replica = *replicas_[slice];
  replica.last_pass = last_pass;
  std::fill(replica.is_put.begin(), replica.is_put.end(), 0);
  loss.backward();
  if (!last_pass) return;
  // A parameter may have a gradient from an earlier pass but none from the last, such as a cluster
  // that none of the last pass's tokens is in. No hook has put it.
  for (std::size_t index = 0; index < replica.is_put.size(); ++index) {
    if (replica.is_put[index] == 0 && replica.model.parameters()[index].tensor.grad().defined()) {
      replica.put(index);
    }
  }
}

void Replicas::drop_gradients() {
  for (const std::unique_ptr<Replica>& replica : replicas_) {
    for (const nn::NamedTensor& parameter : replica->model.parameters()) {
      parameter.tensor.mutable_grad().reset();
    }
  }
}

}  // namespace ql::train
