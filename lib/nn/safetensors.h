// The safetensors format: u64 header length, JSON header, tensors. Never a pickle. Believes no
// number in the file: see ql-checkpoint(5) for every rule that is enforced.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/model.h"

namespace ql::nn {

struct TensorFile {
  std::vector<NamedTensor> tensors;             // in the order of their offsets
  std::map<std::string, std::string> metadata;  // "__metadata__"
  // Throws FormatError naming the file and the tensor when it is missing.
  const at::Tensor& at(const std::string& name) const;
  bool has(const std::string& name) const;
  std::string where;  // the file's name: for messages
};

// F32, F64, F16, BF16, I64, I32, U8 and BOOL. Throws FormatError with the reason.
TensorFile read_safetensors(const std::filesystem::path& path);

// Durable and atomic (base/file.h); tensors are written in the given order.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace ql::nn
