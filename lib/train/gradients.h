// Splits a batch into micro-batches, adds up their gradients in a process and over processes, and
// computes the loss of a step.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "machine/process_group.h"
#include "machine/threads.h"
#include "nn/model_at_lengths.h"
#include "nn/parameters.h"
#include "train/config.h"
#include "train/state.h"

namespace ql::train {

// The functions below split the rows of a batch for a step on the CPU. (On a GPU a step has one
// slice of one pass.) A slice (micro-batch) goes through forward and backward pass on one thread.
// If each thread computes its own slice, matrix products of a few hundred rows are as fast as on
// all threads together, and all other operations are faster. A slice that would need too much
// memory is divided into several passes (accumulation steps).
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

// Our own kernels process the elements of all parameters in blocks. A block lies in one parameter.
// The blocks, and so the order of sums, do not depend on the number of threads.
struct Block {
  std::size_t parameter = 0;          // the index in FlatTensors::named
  std::int64_t first = 0;             // element of the parameter
  std::int64_t begin = 0, count = 0;  // elements of FlatTensors::all
};

// Returns the blocks of all parameters, in order.
std::vector<Block> blocks_of(const nn::FlatTensors& parameters);

// Holds the gradient of a range of nn::FlatTensors::all, which begins with a parameter. On the CPU,
// the elements between parameters are arbitrary numbers.
struct GradientRange {
  std::int64_t begin = 0;
  at::Tensor values;  // [elements]
};

// Holds the gradient of all parameters. The last range has the first parameters. On devices other
// than the CPU there is one range.
using Gradient = std::vector<GradientRange>;

// Returns the gradient that autograd has returned for each parameter as one range, on any device.
// Zeros replace missing gradients, and are between the parameters.
GradientRange concatenate(const nn::FlatTensors& parameters,
                          const std::vector<at::Tensor>& gradients);

// Returns for each block where its gradient begins, on the CPU.
template <typename Scalar>
std::vector<const Scalar*> places_of(const std::vector<Block>& blocks, const Gradient& gradient);

// Returns the sum of the squares of each parameter's gradient, on the CPU.
std::vector<double> sums_of_squares(const nn::FlatTensors& parameters, const Gradient& gradient);

// Returns the L2 norm of a range, float64 without dimension on the range's device, by ATen's
// operations. In float32, an element beyond about 1e19 counts as infinite.
at::Tensor norm_by_operations(const GradientRange& range);

// Returns the L2 norm of the gradient for each group of parameters, in the parameters' order, from
// the result of sums_of_squares(). A layer is the group "layers.N". The first part of the name
// ("word_emb") is the group of any other parameter. Error messages and the log show the norms.
std::vector<GroupNorm> group_norms(const nn::FlatTensors& parameters,
                                   const std::vector<double>& squares);

// Sums gradients over the slices (micro-batches) of this process, and then over all processes. The
// backward pass completes gradients from the last layer to the first. When the gradients of a
// range, and of those before it, are complete in all slices, they are added up and freed. While the
// backward pass continues, another thread sums the range over the processes, in place.
class GradientExchange {
 public:
  // This process has `slices` slices. `parameters` are float32 on the CPU. A parameter of at least
  // `range_bytes` is a range by itself. Smaller ones are joined until they have that size.
  GradientExchange(machine::ProcessGroup& group, const nn::FlatTensors& parameters,
                   std::size_t slices, std::int64_t range_bytes = std::int64_t{128} << 10);

  // Takes the complete gradient of a slice (micro-batch) for a parameter, at most once per step,
  // and may overwrite it. Several threads may call this at once. The gradients of a parameter are
  // added up in the slices' order, whatever the order of the calls. All processes put the gradients
  // of a step together, because this begins sums over the processes.
  void put(std::size_t slice, std::size_t parameter, at::Tensor gradient);

  // Ends the step and returns the gradient, summed over slices (micro-batches) and processes. A
  // gradient for which put() was not called counts as zeros. All processes call finish() together
  // (machine/process_group.h).
  Gradient finish();

 private:
  struct Range {
    std::size_t first = 0, last = 0;    // the blocks [first, last) of blocks_
    std::int64_t begin = 0, count = 0;  // elements
    std::size_t puts = 0;               // calls of put() in a step, for all parameters and slices
    std::size_t missing = 0;            // of these, calls to come in this step
  };

  void start_complete(std::unique_lock<std::mutex>& lock, std::size_t end);
  at::Tensor place_of_sum(const Range& range) const;
  void start(const Range& range);

  machine::ProcessGroup& group_;
  std::vector<Block> blocks_;
  std::vector<Range> ranges_;
  std::vector<std::size_t> range_of_;               // by parameter
  std::vector<std::vector<at::Tensor>> gradients_;  // by slice and parameter, from put() to start()
  Gradient sum_;                                    // of this step

  std::mutex mutex_;
  bool starting_ = false;    // a thread starts sums; only one may, so that the order is fixed
  std::size_t started_ = 0;  // ranges whose sum has been started
  std::vector<machine::ProcessGroup::Wait> under_way_;
};

// Holds one model for each slice of a batch. Each model shares the weights of the trained model but
// has its own gradients, and passes each gradient on when it is complete.
class Replicas {
 public:
  // Takes a gradient, as GradientExchange::put() does.
  using Put = std::function<void(std::size_t slice, std::size_t parameter, at::Tensor gradient)>;

  // The model must outlive this object. Changes to the model's weights take effect here.
  Replicas(const nn::ModelAtLengths& model, std::size_t slices, Put put);
  ~Replicas();
  Replicas(Replicas&&) = delete;

  const nn::ModelAtLengths& of(std::size_t slice) const;

  // Runs the backward pass on the calling thread. `loss` comes from the model that of() returns.
  // The gradients of a slice's passes (accumulation steps) add up. In the last pass, Put gets each
  // gradient as soon as it is complete, and nothing else keeps it.
  void backward(std::size_t slice, const at::Tensor& loss, bool last_pass);

 private:
  struct Replica;
  Put put_;
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

// Returns the number of targets of a row that count: with half_loss, the older floor(segment / 2)
// tokens are only context.
inline std::int64_t counted_targets(std::int64_t segment, const TrainingConfig& config) {
  return config.half_loss ? segment - segment / 2 : segment;
}

// Returns the loss of `ids` [rows, segment + 1], which are some rows of a batch of config.batch
// rows. The target of each token is the next token, and counted_targets() of a row count. Replaces
// `memory` by the memory of the next step.
StepLoss step_loss(const nn::ModelAtLengths& model, const at::Tensor& ids, nn::Memory& memory,
                   const nn::StepOptions& options, const TrainingConfig& config);

}  // namespace ql::train
