#include "train/gradient_exchange.h"

#include <stdexcept>

namespace ql::train {

GradientExchange::GradientExchange(nn::ProcessGroup& group,
                                   const std::vector<nn::NamedTensor>& parameters,
                                   std::size_t slices, std::int64_t bucket_bytes)
    : group_(group), slices_(slices), places_(parameters.size()), gradients_(parameters.size()) {
  std::int64_t elements = 0;
  const auto close = [&] {
    Bucket& bucket = buckets_.back();
    bucket.buffer = at::zeros({elements}, at::kFloat);
    std::int64_t begin = 0;
    for (const std::size_t index : bucket.parameters) {
      const at::Tensor& parameter = parameters[index].tensor;
      places_[index].sum =
          bucket.buffer.narrow(0, begin, parameter.numel()).view(parameter.sizes());
      begin += parameter.numel();
    }
    bucket.missing = bucket.parameters.size() * slices_;
    elements = 0;
  };
  for (std::size_t index = parameters.size(); index-- > 0;) {
    if (elements == 0) {
      buckets_.emplace_back();
    }
    places_[index].bucket = buckets_.size() - 1;
    places_[index].of_slice.resize(slices_);
    buckets_.back().parameters.push_back(index);
    elements += parameters[index].tensor.numel();
    if (elements * static_cast<std::int64_t>(sizeof(float)) >= bucket_bytes || index == 0) {
      close();
    }
  }
  for (std::size_t index = 0; index < places_.size(); ++index) {
    gradients_[index] = places_[index].sum;
  }
}

void GradientExchange::put(std::size_t slice, std::size_t parameter, const at::Tensor& gradient) {
  std::unique_lock<std::mutex> lock(mutex_);
  Place& place = places_[parameter];
  if (place.of_slice[slice].defined()) {
    throw std::logic_error("a slice's gradient was put twice");
  }
  place.of_slice[slice] = gradient;
  if (--buckets_[place.bucket].missing == 0) {
    start_complete(lock);
  }
}

// Complete buckets are started in their order, by the thread that comes first; what completes
// meanwhile is left to it.
void GradientExchange::start_complete(std::unique_lock<std::mutex>& lock) {
  if (starting_) {
    return;
  }
  starting_ = true;
  while (started_ < buckets_.size() && buckets_[started_].missing == 0) {
    Bucket& bucket = buckets_[started_++];
    lock.unlock();
    start(bucket);
    lock.lock();
  }
  starting_ = false;
}

void GradientExchange::start(Bucket& bucket) {
  const at::NoGradGuard no_gradient;
  for (const std::size_t index : bucket.parameters) {
    Place& place = places_[index];
    bool first = true;
    for (at::Tensor& gradient : place.of_slice) {
      if (!gradient.defined()) {
        continue;
      }
      if (first) {
        place.sum.copy_(gradient);
      } else {
        place.sum.add_(gradient);
      }
      first = false;
      gradient.reset();
    }
    if (first) {
      place.sum.zero_();
    }
  }
  sums_.push_back(group_.start_sum(bucket.buffer));
}

const Gradients& GradientExchange::finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (std::size_t next = started_; next < buckets_.size(); ++next) {
    buckets_[next].missing = 0;
  }
  start_complete(lock);
  for (nn::ProcessGroup::Sum& sum : sums_) {
    sum.wait();
  }
  sums_.clear();
  started_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.parameters.size() * slices_;
  }
  return gradients_;
}

}  // namespace ql::train
