// Weights between a checkpoint folder and a model.
#pragma once

#include <filesystem>

#include "nn/model.h"
#include "nn/safetensors.h"

namespace ql::nn {

// Copies every parameter by name. Missing or surplus tensors, other shapes, and NaN or infinite
// values are FormatErrors that list the names. `ignore_prefix` ("golden.") skips such tensors.
// The public code's state has the embedding a second time, as crit.out_layers.0.weight, and a
// constant, pos_emb.inv_freq: the former is accepted when it is equal, the latter always.
void load_weights(Model& model, const TensorFile& file, const std::string& ignore_prefix = "");

// model.safetensors of a checkpoint folder. Where state.json lies beside it, both it and model.json
// must have the hashes that are written there: a flipped bit in a weight shows nowhere else.
TensorFile read_weights(const std::filesystem::path& folder);

// The model of a checkpoint folder: model.json and read_weights(). `options` carries dtype and
// device; the default is float32 on the CPU.
Model load_model(const std::filesystem::path& folder,
                 const at::TensorOptions& options = at::kFloat);

}  // namespace ql::nn
