// Splits a batch into micro-batches, and adds up their gradients in this process and over
// processes.

#include "train/gradients.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

#include "kernels/vector.h"
#include "train/adam.h"

namespace ql::train {

namespace {

// With fewer tokens, packing the operands of a matrix product costs as much as its operations.
constexpr std::int64_t kFewestTokens = 64;

std::vector<RowRange> split(const RowRange& rows, std::int64_t parts) {
  parts = std::clamp<std::int64_t>(parts, 1, rows.count);
  std::vector<RowRange> ranges;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = rows.count * part / parts;
    ranges.push_back({rows.first + first, rows.count * (part + 1) / parts - first});
  }
  return ranges;
}

}  // namespace

std::vector<Slice> split_rows(std::int64_t batch, std::int64_t slices, std::int64_t passes) {
  std::vector<Slice> result;
  for (const RowRange& rows : split({0, batch}, slices)) result.push_back(split(rows, passes));
  return result;
}

std::int64_t choose_slices(std::int64_t batch, std::int64_t segment, int threads) {
  const std::int64_t fewest_rows = (kFewestTokens + segment - 1) / segment;
  const std::int64_t most = std::max<std::int64_t>(1, batch / fewest_rows);
  return std::min(std::max<std::int64_t>(2, threads), most);
}

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
      // The tensor itself does not keep alive the node that accumulates its gradient, so this list
      // does.
      accumulators.push_back(torch::autograd::impl::grad_accumulator(tensor));
      accumulators.back()->add_post_hook(std::make_unique<Hook>(*this, index));
    }
  }

  // Autograd calls the hook after it has added a parameter's gradient to the sum of earlier passes.
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
  std::vector<char> is_put;  // by parameter; several threads write to different elements
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
  // A parameter may have a gradient from an earlier pass but none from the last pass, for example
  // if the last pass has no targets in a cluster of the softmax. Then Hook has not called put().
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

nn::StepOptions step_options(const TrainingConfig& config, std::int64_t step,
                             std::int64_t first_row) {
  nn::StepOptions options;
  options.training = true;
  options.seed = static_cast<std::uint64_t>(config.seed);
  options.step = static_cast<std::uint64_t>(step);
  options.first_row = first_row;
  return options;
}

StepLoss step_loss(const nn::ModelAtLengths& model, const at::Tensor& ids, nn::Memory& memory,
                   const nn::StepOptions& options, const TrainingConfig& config) {
  const std::int64_t rows = ids.size(0), segment = ids.size(1) - 1;
  const std::int64_t context = config.half_loss ? segment / 2 : 0, counted = segment - context;
  at::Tensor reconstruction;
  const at::Tensor states =
      model.forward(ids.narrow(1, 0, segment), memory, options, &reconstruction);
  StepLoss result;
  result.loss =
      model.model().loss(states.narrow(1, context, counted), ids.narrow(1, context + 1, counted),
                         1 / static_cast<double>(config.batch * counted));
  const double share = static_cast<double>(rows) / static_cast<double>(config.batch);
  const double weight = share * config.recons_loss_weight.value_or(kReconstructionWeight);
  result.total = reconstruction.defined() ? result.loss + weight * reconstruction : result.loss;
  return result;
}

namespace {

// Squares of floats are exact in double. In a sum of doubles, small squares vanish much more rarely
// next to large ones.
template <typename Scalar>
QL_VECTOR_BODY double sum_squares_body(const Scalar* values, std::int64_t count) {
  double lanes[kernels::kLanes] = {};
  std::int64_t i = 0;
  for (; i + kernels::kLanes <= count; i += kernels::kLanes) {
    for (std::int64_t lane = 0; lane < kernels::kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) {
    lanes[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return kernels::sum_of<double>(lanes);
}
QL_VECTOR_KERNEL(sum_squares)

// Adds all other addends to the first one, and returns the sum of the squares of the results. The
// squares are summed inside each block, then over the blocks in order.
double join(const std::vector<at::Tensor>& addends) {
  const at::Tensor& sum = addends.front();
  const std::int64_t elements = sum.numel();
  std::vector<double> squares(static_cast<std::size_t>(block_count(elements)));
  AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "join_gradients", [&] {
    const auto join_blocks = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t start = block * kBlock;
        const std::int64_t count = std::min(kBlock, elements - start);
        scalar_t* values = sum.data_ptr<scalar_t>() + start;
        for (std::size_t i = 1; i < addends.size(); ++i) {
          kernels::add_to_sums(kernels::data_of<scalar_t>(addends[i], start), count, 1, count,
                               values);
        }
        squares[static_cast<std::size_t>(block)] =
            sum_squares(static_cast<const scalar_t*>(values), count);
      }
    };
    const auto bytes = static_cast<double>(addends.size() * sum.nbytes());
    machine::for_parts(block_count(elements), machine::microseconds_of(0, bytes), join_blocks);
  });
  double total = 0;
  for (const double square : squares) total += square;
  return total;
}

// Returns "layers.3" for "layers.3.dec_attn.qkv_net.weight", and the first part of other names.
std::string group_of(const std::string& name) {
  const std::size_t first = name.find('.');
  const std::string layers = "layers.";
  return name.substr(0, name.rfind(layers, 0) == 0 ? name.find('.', layers.size()) : first);
}

}  // namespace

double join_gradients(const std::vector<nn::NamedTensor>& parameters,
                      const std::vector<Gradients>& slices) {
  double total = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::vector<at::Tensor> addends;
    for (const Gradients& slice : slices) {
      if (slice[p].defined()) addends.push_back(slice[p].contiguous());
    }
    const at::Tensor& parameter = parameters[p].tensor;
    if (addends.empty()) {
      parameter.mutable_grad().reset();
      continue;
    }
    total += join(addends);
    parameter.mutable_grad() = addends.front();
  }
  return std::sqrt(total);
}

std::vector<GroupNorm> group_norms(const std::vector<nn::NamedTensor>& parameters) {
  std::vector<GroupNorm> groups;
  for (const nn::NamedTensor& parameter : parameters) {
    const std::string name = group_of(parameter.name);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&name](const GroupNorm& other) { return other.name == name; });
    if (group == groups.end()) group = groups.insert(group, {name});
    if (parameter.tensor.grad().defined()) {
      group->norm = std::sqrt(group->norm * group->norm + join({parameter.tensor.grad()}));
    }
  }
  return groups;
}

GradientExchange::GradientExchange(machine::ProcessGroup& group,
                                   const std::vector<nn::NamedTensor>& parameters,
                                   std::size_t slices, std::int64_t bucket_bytes)
    : group_(group), slices_(slices), ranges_(parameters.size()), sums_(parameters.size()) {
  std::vector<std::size_t> small;
  std::int64_t bytes_of_small = 0;
  for (std::size_t index = parameters.size(); index-- > 0;) {
    const at::Tensor& parameter = parameters[index].tensor;
    const auto bytes = parameter.numel() * static_cast<std::int64_t>(sizeof(float));
    ranges_[index].shape = parameter.sizes().vec();
    ranges_[index].of_slice.resize(slices_);
    if (bytes >= bucket_bytes) {
      add_bucket({index});
    } else {
      small.push_back(index);
      bytes_of_small += bytes;
    }
    if (bytes_of_small >= bucket_bytes || (index == 0 && !small.empty())) {
      add_bucket(std::exchange(small, {}));
      bytes_of_small = 0;
    }
  }
}

void GradientExchange::add_bucket(std::vector<std::size_t> parameters) {
  for (const std::size_t index : parameters) ranges_[index].bucket = buckets_.size();
  const std::size_t missing = parameters.size() * slices_;
  buckets_.push_back({std::move(parameters), missing});
}

void GradientExchange::put(std::size_t slice, std::size_t parameter, const at::Tensor& gradient) {
  std::unique_lock<std::mutex> lock(mutex_);
  BucketRange& range = ranges_[parameter];
  if (range.of_slice[slice].defined()) throw std::logic_error("a gradient was put twice");
  range.of_slice[slice] = gradient;
  if (--buckets_[range.bucket].missing == 0) start_complete(lock);
}

// Starts the sums of complete buckets in the buckets' order, up to the first incomplete bucket.
// Only one thread at a time does this; it also starts the buckets that other threads complete in
// the meantime.
void GradientExchange::start_complete(std::unique_lock<std::mutex>& lock) {
  if (starting_) return;
  starting_ = true;
  while (started_ < buckets_.size() && buckets_[started_].missing == 0) {
    const Bucket& bucket = buckets_[started_++];
    lock.unlock();
    start(bucket);
    lock.lock();
  }
  starting_ = false;
}

// Returns the sum of the slices' gradients; zeros if there are none. May overwrite the first one.
at::Tensor GradientExchange::sum_of_slices(std::size_t parameter) {
  at::Tensor sum;
  for (at::Tensor& gradient : ranges_[parameter].of_slice) {
    const at::Tensor addend = std::exchange(gradient, {});
    if (!sum.defined()) {
      sum = addend.defined() ? addend.contiguous() : sum;
    } else if (addend.defined()) {
      sum.add_(addend);
    }
  }
  return sum.defined() ? sum : at::zeros(ranges_[parameter].shape, at::kFloat);
}

void GradientExchange::start(const Bucket& bucket) {
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> sums;
  for (const std::size_t index : bucket.parameters) {
    sums.push_back(sum_of_slices(index));
    sums_[index] = sums.back();
  }
  under_way_.push_back(group_.start_sum(sums));
}

Gradients GradientExchange::finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (std::size_t next = started_; next < buckets_.size(); ++next) buckets_[next].missing = 0;
  start_complete(lock);
  for (const machine::ProcessGroup::Wait& wait : under_way_) wait();
  under_way_.clear();
  started_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size() * slices_;
  return std::exchange(sums_, Gradients(ranges_.size()));
}

}  // namespace ql::train
