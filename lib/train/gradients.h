// Splits a batch into micro-batches, adds up their gradients in a process and over processes, and
// computes the loss of a step.
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

// The functions below split the rows of a batch for a step on the CPU. A slice (micro-batch) goes
// through forward and backward pass on one thread. If each thread computes its own slice, matrix
// products of a few hundred rows are as fast as on all threads together, and all other operations
// are faster. A slice that would need too much memory is divided into several passes (accumulation
// steps).
//
// The results of a step depend on the slices and passes. With several slices, they do not depend on
// the number of threads. The operations of a single slice use all threads, so its results may
// depend on their number.

using machine::RowRange;

// A slice is the list of its passes, in order.
using Slice = std::vector<RowRange>;

// Splits `batch` rows into `slices` parts of nearly equal size, and each of these into `passes`
// parts. A part has at least one row, so there may be fewer parts.
std::vector<Slice> split_rows(std::int64_t batch, std::int64_t slices, std::int64_t passes);

// Returns the number of slices: one per thread, but at least two, so that one and two threads give
// the same bits. If a slice would then have under 64 tokens, there are fewer slices.
std::int64_t choose_slices(std::int64_t batch, std::int64_t segment, int threads);

// The functions below sum the gradients that the slices of a batch have in one step.

// Gradients holds one gradient for each parameter, in the parameters' order. A gradient is
// undefined if the loss does not depend on the parameter.
using Gradients = std::vector<at::Tensor>;

// Sets each parameter's grad() to the sum of the gradients of all slices (micro-batches), added in
// their order, and returns the L2 norm over all parameters. This reads the gradients once, and the
// sums have the same order for any number of threads. For each parameter, the sum may overwrite the
// gradient of the first slice that has one.
double join_gradients(const std::vector<nn::NamedTensor>& parameters,
                      const std::vector<Gradients>& slices);

// Returns the L2 norm of grad() for each group of parameters, in the parameters' order. A layer is
// the group "layers.N". The first part of the name ("word_emb") is the group of any other
// parameter. Error messages and the log show the norms.
std::vector<GroupNorm> group_norms(const std::vector<nn::NamedTensor>& parameters);

// Sums gradients over the slices (micro-batches) of this process, and then over all processes. A
// bucket is one large gradient, or several small ones that the processes send together. The
// backward pass completes gradients from the last layer to the first. While it continues, another
// thread sums complete buckets over the processes, in place.
class GradientExchange {
 public:
  // This process has `slices` slices. `parameters` are all float32 on the CPU. A gradient of at
  // least `bucket_bytes` is sent by itself. Smaller ones are sent in buckets of at least this size,
  // except for the last bucket.
  GradientExchange(machine::ProcessGroup& group, const std::vector<nn::NamedTensor>& parameters,
                   std::size_t slices, std::int64_t bucket_bytes = std::int64_t{128} << 10);

  // Takes the complete gradient of a slice (micro-batch) for a parameter, at most once per step,
  // and may overwrite the tensor. Several threads may call this at once. The gradients of a
  // parameter are added up in the slices' order, whatever the order of the calls.
  void put(std::size_t slice, std::size_t parameter, const at::Tensor& gradient);

  // Ends the step and returns every parameter's gradient, summed over slices (micro-batches) and
  // processes. A gradient for which put() was not called counts as zeros. All processes call
  // finish() together (machine/process_group.h).
  Gradients finish();

 private:
  struct BucketRange {
    std::vector<std::int64_t> shape;
    std::size_t bucket = 0;
    std::vector<at::Tensor> of_slice;  // undefined before the slice's put()
  };
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;  // calls of put() to come, for all parameters and slices
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
  bool starting_ = false;    // a thread starts sums; only one may, so that the order is fixed
  std::size_t started_ = 0;  // buckets whose sum has been started
  std::vector<machine::ProcessGroup::Wait> under_way_;
};

// Holds one model for each slice of a batch. Each model shares the weights of the trained model but
// has its own gradients, and puts each gradient into the exchange when this gradient is complete.
class Replicas {
 public:
  // Model and exchange must outlive this object. Changes to the model's weights take effect here.
  Replicas(const nn::Model& model, std::size_t slices, GradientExchange& exchange);
  ~Replicas();
  Replicas(Replicas&&) = delete;

  const nn::ModelAtLengths& of(std::size_t slice) const;

  // Runs the backward pass on the calling thread. `loss` comes from the model that of() returns.
  // The gradients of a slice's passes (accumulation steps) add up. In the last pass,
  // GradientExchange::put() gets each gradient as soon as it is complete.
  void backward(std::size_t slice, const at::Tensor& loss, bool last_pass);
  // Call this after a step.
  void drop_gradients();

 private:
  struct Replica;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

// The functions below compute the loss that training minimises.

// Returns the options of step number `step` (from 0) for the batch's rows from `first_row` on.
nn::StepOptions step_options(const TrainingConfig& config, std::int64_t step,
                             std::int64_t first_row);

// The default of recons_loss_weight comes from the paper's appendix E.
constexpr double kReconstructionWeight = 0.01;

struct StepLoss {
  // The sum of the losses of some rows, divided by the number of targets of the complete batch.
  // Targets that half_loss leaves out count in neither.
  at::Tensor loss;
  at::Tensor total;  // `loss` plus the weighted reconstruction loss; the backward pass starts here
};

// Returns the loss of `ids` [rows, segment + 1], which are some rows of a batch of config.batch
// rows. The target of each token is the next token. With half_loss, the older floor(segment / 2)
// tokens of a row are only context. Replaces `memory` by the memory of the next step.
StepLoss step_loss(const nn::ModelAtLengths& model, const at::Tensor& ids, nn::Memory& memory,
                   const nn::StepOptions& options, const TrainingConfig& config);

}  // namespace ql::train
