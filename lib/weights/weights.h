// Reads the weights of a checkpoint folder, and loads them into a model.
#pragma once

#include <filesystem>
#include <string>

#include "nn/model.h"
#include "weights/safetensors.h"

namespace ql::weights {

// Copies every parameter from the tensor with its name. Throws a FormatError that names up to 8
// tensors that are missing or surplus, have another shape, or hold integers, NaN or infinite
// values, or that names a prefix of all names. A state_dict of the public Transformer-XL code has
// copies of tied embeddings and projections under crit., and in every layer copies of the shared
// biases u and v. These copies are accepted if they are equal to the originals. The state_dict's
// constant, pos_emb.inv_freq, is always accepted.
void load_weights(nn::Model& model, const TensorFile& file);

// Reads model.safetensors of a checkpoint, given by its folder or its model.json. If the folder has
// a state.json, state.json must be complete, and model.safetensors and model.json must have the
// hashes that state.json records: nothing else would detect a flipped bit in a weight. Weights of
// Hugging Face Transformers have the prefix "transformer."; they get the names and the order of the
// public Transformer-XL code.
TensorFile read_weights(const std::filesystem::path& checkpoint);

// Makes the model of a checkpoint from model.json and read_weights(). `options` gives dtype
// and device; the default is float32 on the CPU.
nn::Model load_model(const std::filesystem::path& checkpoint,
                     const at::TensorOptions& options = at::kFloat);
// Does the same with `network` in the place of model.json.
nn::Model load_model(const std::filesystem::path& checkpoint, const net::Network& network,
                     const at::TensorOptions& options);

// Returns the hash of all parameters' bits.
std::string hash_of(const nn::Model& model);

}  // namespace ql::weights
