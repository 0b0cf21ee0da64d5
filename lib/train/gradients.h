// Splits a batch into micro-batches with a model for each, and adds up their gradients in a process
// and over processes.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "machine/process_group.h"
#include "machine/threads.h"
#include "nn/model.h"
#include "nn/parameters.h"
#include "train/config.h"
#include "train/state.h"

namespace ql::train {

// Splits the rows of a batch for a step on the CPU. A slice (micro-batch) goes through forward and
// backward pass on one thread: matrix products of some hundred rows are as fast that way as on all
// threads together, and everything between them is faster. A slice that would need too much memory
// is divided into several passes (accumulation steps).
//
// The sums of a step depend on the slices and passes, and not on the number of threads, except for
// a single slice: its products run on all threads.

using machine::RowRange;

// A slice is its passes, in order.
using Slice = std::vector<RowRange>;

// Splits `batch` rows into `slices` parts of nearly equal size, and each of these into `passes`
// parts. There is at most one part for every row.
std::vector<Slice> split_rows(std::int64_t batch, std::int64_t slices, std::int64_t passes);

// Returns the number of slices for a training on `threads` threads: one for each thread, at least
// two, and each of at least 64 tokens. So one and two threads compute the same if there are two
// slices.
std::int64_t choose_slices(std::int64_t batch, std::int64_t segment, int threads);

// Sums the gradients that the slices of a batch have in one step.

// Gradients has the gradient of every parameter, in the parameters' order. It is undefined if the
// loss does not depend on the parameter.
using Gradients = std::vector<at::Tensor>;

// Adds up the slices' gradients, in the slices' order, as the parameters' grad(), and returns the
// L2 norm of all of them together. This is one pass over memory, and the sums have the same order
// for any number of threads. The tensors of the first slice that has a gradient are overwritten.
double join_gradients(const std::vector<nn::NamedTensor>& parameters,
                      const std::vector<Gradients>& slices);

// Returns the L2 norms of the parameters' grad() by groups, in the parameters' order: "layers.N"
// for each layer, else the first part of the name ("word_emb"). They are for error messages.
std::vector<GroupNorm> group_norms(const std::vector<nn::NamedTensor>& parameters);

// Sums the gradients of a step over the slices of all processes while the backward pass is running.
//
// Gradients become known from the last layer to the first. Large ones are summed over the processes
// in place; small ones are packed into buckets. Another thread sums the complete ones while the
// backward pass continues.
class GradientExchange {
 public:
  // `slices` slices of this process put gradients of these parameters, all float32 on the CPU. A
  // bucket has at least `bucket_bytes`, except for the last one. A gradient of that size is a
  // bucket by itself.
  GradientExchange(machine::ProcessGroup& group, const std::vector<nn::NamedTensor>& parameters,
                   std::size_t slices, std::int64_t bucket_bytes = std::int64_t{128} << 10);

  // Takes the complete gradient of a slice for a parameter, at most once a step, and may write to
  // it. Several threads may call this at once. Sums are taken in the order of slices and of
  // processes.
  void put(std::size_t slice, std::size_t parameter, const at::Tensor& gradient);

  // Ends the step. A gradient that no slice has put counts as zeros. All processes call it together
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
  std::size_t started_ = 0;  // buckets whose sum has been started
  std::vector<machine::ProcessGroup::Wait> under_way_;
};

// Holds one model for each slice of a batch. It shares the weights of the trained model but has its
// own gradients, which it puts into the exchange when they are known.
class Replicas {
 public:
  // Model and exchange must outlive this object. The weights are shared, so changes to them take
  // effect here.
  Replicas(const nn::Model& model, std::size_t slices, GradientExchange& exchange);
  ~Replicas();
  Replicas(Replicas&&) = delete;

  const nn::ModelAtLengths& of(std::size_t slice) const;

  // Runs the backward pass of a loss of of(slice) on the calling thread. Gradients of a slice's
  // passes add up. In the last pass each goes to the exchange as soon as it is complete.
  void backward(std::size_t slice, const at::Tensor& loss, bool last_pass);
  // Call this after a step.
  void drop_gradients();

 private:
  struct Replica;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

// Computes the loss that a step of training minimises.

// Returns the options of step number `step` (from 0) for rows that begin with `first_row` of the
// batch.
nn::StepOptions step_options(const TrainingConfig& config, std::int64_t step,
                             std::int64_t first_row);

// This is recons_loss_weight of the paper's appendix E.
constexpr double kReconstructionWeight = 0.01;

struct StepLoss {
  at::Tensor loss;   // these rows' part of the mean over the batch's trained targets
  at::Tensor total;  // `loss` plus the weighted reconstruction loss, whose gradient is computed
};

// Returns the loss of `ids` [rows, segment + 1], rows of a batch of config.batch. Each token's
// target is the next one. With half_loss the older half of the targets is only context. Replaces
// `memory` by that of the next step.
StepLoss step_loss(const nn::ModelAtLengths& model, const at::Tensor& ids, nn::Memory& memory,
                   const nn::StepOptions& options, const TrainingConfig& config);

}  // namespace ql::train
