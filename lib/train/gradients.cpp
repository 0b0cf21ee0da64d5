// Splits a batch into micro-batches, computes their losses, and adds up their gradients in this
// process and over processes.

#include "train/gradients.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

#include "kernels/vector.h"

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

std::vector<Block> blocks_of(const nn::FlatTensors& parameters) {
  constexpr std::int64_t kBlock = 16384;  // the most elements of a block
  std::vector<Block> blocks;
  for (std::size_t parameter = 0; parameter < parameters.named.size(); ++parameter) {
    const at::Tensor& tensor = parameters.named[parameter].tensor;
    for (std::int64_t first = 0; first < tensor.numel(); first += kBlock) {
      const std::int64_t count = std::min(kBlock, tensor.numel() - first);
      blocks.push_back({parameter, first, tensor.storage_offset() + first, count});
    }
  }
  return blocks;
}

struct Replicas::Replica {
  Replica(const nn::ModelAtLengths& original, std::size_t the_slice, const Put& the_put)
      : model(original.model().with_shared_weights()),
        at_lengths(model, original),
        slice(the_slice),
        put_gradient(the_put),
        is_put(model.parameters().size()) {
    for (std::size_t index = 0; index < model.parameters().size(); ++index) {
      const at::Tensor& tensor = model.parameters()[index].tensor;
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
    put_gradient(slice, index,
                 std::exchange(model.parameters()[index].tensor.mutable_grad(), at::Tensor()));
    is_put[index] = 1;
  }

  nn::Model model;
  nn::ModelAtLengths at_lengths;
  std::size_t slice;
  const Put& put_gradient;
  std::vector<char> is_put;  // by parameter; several threads write to different elements
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
  bool last_pass = false;
};

Replicas::Replicas(const nn::ModelAtLengths& model, std::size_t slices, Put put)
    : put_(std::move(put)) {
  for (std::size_t slice = 0; slice < slices; ++slice) {
    replicas_.push_back(std::make_unique<Replica>(model, slice, put_));
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
  const std::int64_t counted = counted_targets(segment, config), context = segment - counted;
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

// Returns "layers.3" for "layers.3.dec_attn.qkv_net.weight", and the first part of other names.
std::string group_of(const std::string& name) {
  const std::size_t first = name.find('.');
  const std::string layers = "layers.";
  return name.substr(0, name.rfind(layers, 0) == 0 ? name.find('.', layers.size()) : first);
}

}  // namespace

template <typename Scalar>
std::vector<const Scalar*> places_of(const std::vector<Block>& blocks, const Gradient& gradient) {
  std::vector<const Scalar*> places(blocks.size());
  for (const auto& [begin, values] : gradient) {
    auto block = std::lower_bound(blocks.begin(), blocks.end(), begin,
                                  [](const Block& a, std::int64_t b) { return a.begin < b; });
    for (; block != blocks.end() && block->begin < begin + values.numel(); ++block) {
      places[static_cast<std::size_t>(block - blocks.begin())] =
          values.template data_ptr<Scalar>() + (block->begin - begin);
    }
  }
  return places;
}
template std::vector<const float*> places_of(const std::vector<Block>&, const Gradient&);
template std::vector<const double*> places_of(const std::vector<Block>&, const Gradient&);

std::vector<double> sums_of_squares(const nn::FlatTensors& parameters, const Gradient& gradient) {
  const std::vector<Block> blocks = blocks_of(parameters);
  std::vector<double> of_blocks(blocks.size());
  AT_DISPATCH_FLOATING_TYPES(parameters.all.scalar_type(), "sums_of_squares", [&] {
    const std::vector<const scalar_t*> places = places_of<scalar_t>(blocks, gradient);
    machine::for_parts(static_cast<std::int64_t>(blocks.size()),
                       machine::microseconds_of(0, static_cast<double>(parameters.all.nbytes())),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (auto i = static_cast<std::size_t>(begin);
                              i < static_cast<std::size_t>(end); ++i) {
                           of_blocks[i] = sum_squares(places[i], blocks[i].count);
                         }
                       });
  });
  std::vector<double> of_parameters(parameters.named.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    of_parameters[blocks[i].parameter] += of_blocks[i];
  }
  return of_parameters;
}

at::Tensor norm_by_operations(const GradientRange& range) {
  // A norm in double precision would copy the gradient. So the norms of short rows have the
  // gradient's type, and only the norm of these norms is in double precision.
  const at::Tensor of_rows =
      at::linalg_vector_norm(range.values.view({-1, nn::FlatTensors::kAlignment}), 2, 1);
  return at::linalg_vector_norm(of_rows, 2, at::OptionalIntArrayRef(), false, at::kDouble);
}

GradientRange concatenate(const nn::FlatTensors& parameters,
                          const std::vector<at::Tensor>& gradients) {
  // On a GPU, a concatenation spends as much time on each tensor as on its longest one. So
  // gradients of at least this many elements are copied separately.
  constexpr std::int64_t kLarge = std::int64_t{1} << 20;
  const at::NoGradGuard no_gradient;
  at::Tensor all = at::empty_like(parameters.all);
  const at::Tensor padding = at::zeros({nn::FlatTensors::kAlignment}, all.options());
  std::vector<at::Tensor> run;  // adjacent small tensors, the first of them at element `begin`
  std::int64_t begin = 0;
  const auto write_run = [&](std::int64_t end) {
    at::Tensor place = all.narrow(0, begin, end - begin);
    if (!run.empty()) at::cat_out(place, run);
    run.clear();
  };
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& parameter = parameters.named[i].tensor;
    const std::int64_t first = parameter.storage_offset(), size = parameter.numel();
    const std::int64_t next =
        i + 1 < gradients.size() ? parameters.named[i + 1].tensor.storage_offset() : all.size(0);
    const at::Tensor values =
        gradients[i].defined() ? gradients[i].reshape({size}) : at::zeros({size}, all.options());
    if (size >= kLarge) {
      write_run(first);
      begin = first + size;
      all.narrow(0, first, size).copy_(values);
    } else {
      run.push_back(values);
    }
    if (next > first + size) run.push_back(padding.narrow(0, 0, next - first - size));
  }
  write_run(all.size(0));
  return {0, all};
}

std::vector<GroupNorm> group_norms(const nn::FlatTensors& parameters,
                                   const std::vector<double>& squares) {
  std::vector<GroupNorm> groups;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const std::string name = group_of(parameters.named[i].name);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&name](const GroupNorm& other) { return other.name == name; });
    if (group == groups.end()) group = groups.insert(group, {name});
    group->norm = std::sqrt(group->norm * group->norm + squares[i]);
  }
  return groups;
}

GradientExchange::GradientExchange(machine::ProcessGroup& group, const nn::FlatTensors& parameters,
                                   std::size_t slices, std::int64_t range_bytes)
    : group_(group),
      blocks_(blocks_of(parameters)),
      range_of_(parameters.named.size()),
      gradients_(slices, std::vector<at::Tensor>(parameters.named.size())) {
  const auto bytes = [](std::int64_t elements) { return elements * std::int64_t{sizeof(float)}; };
  Range range;
  for (std::size_t parameter = parameters.named.size(); parameter-- > 0;) {
    const at::Tensor& tensor = parameters.named[parameter].tensor;
    const bool is_large = bytes(tensor.numel()) >= range_bytes;
    const bool is_full = range.puts > 0 && (is_large || bytes(range.count) >= range_bytes);
    if (is_full) ranges_.push_back(std::exchange(range, {}));
    if (range.puts == 0) {
      range.last = ranges_.empty() ? blocks_.size() : ranges_.back().first;
      range.first = range.last;
      range.count = tensor.numel();
    } else {
      range.count += range.begin - tensor.storage_offset();
    }
    range.begin = tensor.storage_offset();
    while (range.first > 0 && blocks_[range.first - 1].parameter == parameter) --range.first;
    range.puts += slices;
    range.missing = range.puts;
    range_of_[parameter] = ranges_.size();
  }
  ranges_.push_back(range);
}

void GradientExchange::put(std::size_t slice, std::size_t parameter, at::Tensor gradient) {
  gradient = gradient.contiguous();
  std::unique_lock<std::mutex> lock(mutex_);
  at::Tensor& place = gradients_[slice][parameter];
  if (place.defined()) throw std::logic_error("a gradient was put twice");
  place = std::move(gradient);
  if (--ranges_[range_of_[parameter]].missing > 0) return;
  // The last range has the first embeddings, a large table. If there is only one process, no other
  // waits for the sum, so finish() adds this range up, on all threads.
  start_complete(lock, ranges_.size() - (group_.is_single() ? 1 : 0));
}

// Starts the sums of complete ranges in the ranges' order, up to the first incomplete one, and
// before range `end`. Only one thread at a time does this; it also starts the ranges that other
// threads complete in the meantime.
void GradientExchange::start_complete(std::unique_lock<std::mutex>& lock, std::size_t end) {
  if (starting_) return;
  starting_ = true;
  while (started_ < end && ranges_[started_].missing == 0) {
    const Range& range = ranges_[started_++];
    lock.unlock();
    start(range);
    lock.lock();
  }
  starting_ = false;
}

// Returns the memory for the sum of a range. If the range is one parameter, this is the gradient of
// the first slice, so that this gradient need not be copied.
at::Tensor GradientExchange::place_of_sum(const Range& range) const {
  const std::size_t parameter = blocks_[range.first].parameter;
  const at::Tensor& gradient = gradients_.front()[parameter];
  const bool is_one = blocks_[range.last - 1].parameter == parameter;
  return is_one && gradient.defined() ? gradient.view({-1}) : at::empty({range.count}, at::kFloat);
}

void GradientExchange::start(const Range& range) {
  const at::NoGradGuard no_gradient;
  const at::Tensor sum = place_of_sum(range);
  const auto add_up = [&](const Block& block) {
    float* const values = sum.data_ptr<float>() + (block.begin - range.begin);
    bool is_first = true;
    for (const std::vector<at::Tensor>& slice : gradients_) {
      const at::Tensor& gradient = slice[block.parameter];
      if (!gradient.defined()) continue;
      const float* const addends = gradient.data_ptr<float>() + block.first;
      if (std::exchange(is_first, false)) {
        if (addends != values) std::copy_n(addends, block.count, values);
      } else {
        kernels::add_to_sums(addends, block.count, 1, block.count, values);
      }
    }
    if (is_first) std::fill_n(values, block.count, 0.0F);
  };
  const auto bytes = static_cast<double>((gradients_.size() + 1) * sum.nbytes());
  machine::for_parts(static_cast<std::int64_t>(range.last - range.first),
                     machine::microseconds_of(0, bytes), [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         add_up(blocks_[range.first + static_cast<std::size_t>(i)]);
                       }
                     });
  for (std::size_t i = range.first; i < range.last; ++i) {
    for (std::vector<at::Tensor>& slice : gradients_) slice[blocks_[i].parameter].reset();
  }
  sum_.push_back({range.begin, sum});
  under_way_.push_back(group_.start_sum(sum));
}

Gradient GradientExchange::finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  // Gradients that are still missing count as zeros.
  for (std::size_t next = started_; next < ranges_.size(); ++next) ranges_[next].missing = 0;
  start_complete(lock, ranges_.size());
  for (const machine::ProcessGroup::Wait& wait : under_way_) wait();
  under_way_.clear();
  started_ = 0;
  for (Range& range : ranges_) range.missing = range.puts;
  return std::exchange(sum_, {});
}

}  // namespace ql::train
