// Holds a network of the Transformer-QL family with its parameters, embedding and softmax, and runs
// the network at some segment and memory lengths.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kernels/product.h"
#include "machine/device.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn/memory.h"
#include "nn/parameters.h"
#include "nn/step_options.h"

namespace ql::nn {

class DecodeState;

// A Model has the parameters of a network, its embedding and its softmax. ModelAtLengths runs the
// embedding and all layers before the softmax. Parameters have the names of the public PyTorch
// Transformer-XL, so that published weights load.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model], losses [batch, segment]
// in nats.
class Model {
 public:
  // Parameters are zero until initialise() or load_weights(). `options` has the dtype (float32, or
  // float64 in tests and in measure_context()) and the device. Throws ConfigError if the network
  // cannot be built.
  Model(const net::Network& network, const at::TensorOptions& options);
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;
  // Returns a model of the same weights, in the same memory. Its parameters have gradients of their
  // own.
  Model with_shared_weights() const;

  const net::Network& network() const { return network_; }
  const at::TensorOptions& options() const { return options_; }
  // Returns the parameters in a fixed order, with requires_grad set. Tied parameters appear once.
  const std::vector<NamedTensor>& parameters() const { return parameters_.flat.named; }
  std::int64_t parameter_count() const;
  // Returns the same parameters by role, and as parts of one tensor.
  const Parameters& weights() const { return parameters_; }

  // Draws initial weights (paper, appendix E; nn/parameters.h). The same seed gives the same
  // weights.
  void initialise(std::uint64_t seed);

  // Returns the embeddings [batch, segment, d_model] of tokens [batch, segment], scaled by
  // sqrt(d_model) and then changed by add_places() (nn/encoding.h). `place` is the index of the
  // first token in its segment. Throws ConfigError for another shape or dtype, and FormatError for
  // a token that is not in the vocabulary (which is checked only for tokens on the CPU).
  at::Tensor embed(const at::Tensor& tokens, std::int64_t place = 0) const;

  // Returns the negative log-likelihood of every target, [batch, segment]. `states` are the states
  // from which the targets are predicted. Throws as embed() does.
  at::Tensor losses(const at::Tensor& states, const at::Tensor& targets) const;

  // Returns the log probability of every token of the vocabulary, [batch, length, vocab_size]. The
  // size of the result limits how many states a caller can pass at a time. Throws ConfigError for
  // states of another shape.
  at::Tensor log_probabilities(const at::Tensor& states) const;

  // Returns logits [batch, length, vocab_size] whose log-softmax is log_probabilities()
  // (kernels/softmax.h).
  at::Tensor logits(const at::Tensor& states) const;

  // Returns the sum of losses() times `factor`, a scalar. With the factor 1 / targets.numel() this
  // is the mean. Training uses this function, because it computes the gradients together with the
  // loss (kernels/softmax.h).
  at::Tensor loss(const at::Tensor& states, const at::Tensor& targets, double factor) const;

 private:
  Model(const net::Network& network, const at::TensorOptions& options, const at::Tensor& all);
  at::Tensor check_ids(const at::Tensor& ids, const char* what) const;
  at::Tensor check_targets(const at::Tensor& states, const at::Tensor& targets) const;

  net::Network network_;
  at::TensorOptions options_;
  Parameters parameters_;
};

// While an object of this class lives, matrix products with the weights of `model` use `precision`,
// in this thread and in the pieces into which this thread divides its work (machine/threads.h). For
// bfloat16 on the CPU, the parameters get a rounded copy (kernels/product.h), so they must not
// change before the object's end. On other devices LibTorch's autocast rounds. A model has at
// most one such object at a time.
class ModelPrecision {
 public:
  ModelPrecision(const Model& model, machine::Precision precision);
  ModelPrecision(ModelPrecision&&) = delete;

 private:
  machine::Autocast autocast_;
  std::optional<kernels::RoundedWeights> rounded_;
};

// The rest of this file runs a model at some segment and memory lengths.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model].

// Holds everything that a step needs and that depends only on the network and the lengths.
struct LengthTables {
  net::Geometry geometry;
  // position_table() of the longest window, for every width of states.
  std::map<std::int64_t, at::Tensor> positions;
  // This is kernels::attention_mask() for each stage. A mask is undefined for a stage that feeds no
  // layer. All masks are undefined for linear attention and for our own kernels, which need no
  // mask.
  std::vector<at::Tensor> attention_mask;
};

class ModelAtLengths {
 public:
  // `model` must outlive this object; the model's weights may change. Throws ConfigError if the
  // lengths do not fit the network.
  ModelAtLengths(const Model& model, const net::Lengths& lengths);
  // Shares the tables of `other`, whose model has the same network.
  ModelAtLengths(const Model& model, const ModelAtLengths& other)
      : model_(model), tables_(other.tables_) {}

  const Model& model() const { return model_; }
  const net::Geometry& geometry() const { return tables_.geometry; }

  Memory start_memory(std::int64_t batch) const;

  // Returns the states [batch, segment, d_model] of the last stage for tokens [batch, segment], and
  // replaces `memory` by the memory of the next step. Throws ConfigError if tokens, memory and
  // `step.document_offsets` do not fit together, and FormatError for a token that is not in the
  // vocabulary (which is checked only for tokens on the CPU).
  //
  // `reconstruction`, if given, is set to the auxiliary loss by which a compressive network learns
  // its convolution and decoder (nn/compression.h). The caller adds this scalar to the loss with a
  // small weight (the paper: 0.01). It is undefined outside training, and if there is nothing to
  // learn.
  at::Tensor forward(const at::Tensor& tokens, Memory& memory, const StepOptions& step,
                     at::Tensor* reconstruction = nullptr) const;

  // Computes forward() for `embedded`, the result of Model::embed() for a segment's tokens. A
  // caller that holds the embeddings can request the gradient with respect to them.
  at::Tensor forward_embedded(const at::Tensor& embedded, Memory& memory, const StepOptions& step,
                              at::Tensor* reconstruction = nullptr) const;

  // Computes forward() without dropout and gradient for consecutive segments of one stream: tokens
  // [segments, segment] go through the first layer, then through the second, and so on. `memory`
  // has batch 1; `document_offsets` are as in StepOptions, one for each segment. If they are given,
  // the memory is reset even for a network that does not reset its memory in forward(). The states
  // equal those of forward(), segment by segment. If the network's pool is kMostUsed, a layer still
  // computes its segments one by one, because the states that the layer keeps from a segment depend
  // on the previous segment. If `map` is given, every layer adds its attention to `map`. `shown`
  // then has a range of queries for each segment, as in StepOptions.
  at::Tensor forward_stream(const at::Tensor& tokens, Memory& memory,
                            const std::vector<std::int64_t>& document_offsets = {},
                            AttentionMap* map = nullptr,
                            const std::vector<Places>& shown = {}) const;

  // Computes forward() without dropout and gradient for the next tokens [batch, count] of the
  // streams in `growing`. Inside a segment, nothing is computed again for earlier tokens. Returns
  // states [batch, count, d_model]. On the CPU the bits of a stream's states do not depend on the
  // other streams.
  at::Tensor forward_next(const at::Tensor& tokens, DecodeState& decoding) const;

 private:
  at::Tensor embed_segments(const at::Tensor& tokens) const;
  // Call this before the first token of a segment. If the network resets its memory at documents,
  // the memory's states of earlier documents become zeros.
  void forget_before(DecodeState& decoding) const;

  const Model& model_;
  LengthTables tables_;
};

}  // namespace ql::nn
