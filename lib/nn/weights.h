// Weights between a checkpoint folder and a model.
#pragma once

#include <filesystem>

#include "nn/model.h"
#include "nn/safetensors.h"

namespace ql::nn {

// Copies every parameter by name. Missing or surplus tensors, other shapes, and NaN or infinite
// values are FormatErrors that list the names. `ignore_prefix` ("golden.") skips such tensors.
void load_weights(Model& model, const TensorFile& file, const std::string& ignore_prefix = "");

// The model of a checkpoint folder: model.json and model.safetensors. `options` carries dtype and
// device; the default is float32 on the CPU.
Model load_model(const std::filesystem::path& folder,
                 const at::TensorOptions& options = at::kFloat);

}  // namespace ql::nn
