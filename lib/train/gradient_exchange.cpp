#include "train/gradient_exchange.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <utility>

namespace ql::train {

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
  if (range.of_slice[slice].defined()) throw std::logic_error("a slice's gradient was put twice");
  range.of_slice[slice] = gradient;
  if (--buckets_[range.bucket].missing == 0) start_complete(lock);
}

// Complete buckets are started in their order, by the thread that comes first. It also starts those
// that become complete meanwhile.
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

// Sums into the tensor of the first slice that has one.
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
