// Sums the gradients of a step over the slices of all processes while the backward pass is still
// under way.
//
// Gradients become known from the last layer to the first. Large ones are summed over the processes
// in place; small ones are packed into buckets. Another thread sums the complete ones while the
// pass goes on.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "machine/process_group.h"
#include "nn/named_tensor.h"
#include "train/gradients.h"

namespace ql::train {

class GradientExchange {
 public:
  // `slices` of this process bring gradients of these parameters, all float32 on the CPU. A bucket
  // has at least `bucket_bytes`, but for the last one. A gradient of that size is a bucket by
  // itself.
  GradientExchange(machine::ProcessGroup& group, const std::vector<nn::NamedTensor>& parameters,
                   std::size_t slices, std::int64_t bucket_bytes = std::int64_t{128} << 10);

  // Takes the whole gradient of a slice for a parameter, at most once a step, and may write to it.
  // Several threads may call this at once. Sums are taken in the order of slices and of processes.
  void put(std::size_t slice, std::size_t parameter, const at::Tensor& gradient);

  // Ends the step. A gradient that no slice has put counts as zeros. This call is common
  // (machine/process_group.h).
  Gradients finish();

 private:
  struct BucketRange {
    std::vector<std::int64_t> shape;
    std::size_t bucket = 0;
    std::vector<at::Tensor> of_slice;  // undefined: not put yet
  };
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;  // gradients of all its parameters and slices
  };

  void add_bucket(std::vector<std::size_t> parameters);
  void start_complete(std::unique_lock<std::mutex>& lock);
  void start(const Bucket& bucket);
  at::Tensor sum_of_slices(std::size_t parameter);

  machine::ProcessGroup& group_;
  std::size_t slices_;
  std::vector<BucketRange> ranges_;  // by parameter
  std::vector<Bucket> buckets_;
  Gradients sums_;  // of this step

  std::mutex mutex_;
  bool starting_ = false;    // only one thread starts sums, so all processes have the same order
  std::size_t started_ = 0;  // buckets that are on their way
  std::vector<machine::ProcessGroup::Wait> under_way_;
};

}  // namespace ql::train
