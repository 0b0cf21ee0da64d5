#include "train/gradients.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/vector.h"
#include "machine/pieces.h"
#include "train/parameter_blocks.h"

namespace ql::train {
namespace {

template <typename Scalar>
QL_VECTOR_BODY void add_block_body(Scalar* sum, const Scalar* other, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += other[i];
}

QL_VECTOR_KERNEL(add_block)

// Squares of float are exact in double, and small ones do not vanish beside large ones.
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
  double sum = 0;
  for (std::int64_t lane = 0; lane < kernels::kLanes; ++lane) sum += lanes[lane];
  return sum;
}
QL_VECTOR_KERNEL(sum_squares)

// Adds all addends to the first one and returns the sum of its squares, which is taken inside each
// block and then over the blocks in order.
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
          add_block(values, static_cast<const scalar_t*>(addends[i].data_ptr<scalar_t>()) + start,
                    count);
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

}  // namespace ql::train
