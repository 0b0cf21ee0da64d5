// Reads and writes the safetensors format: a u64 header length, a JSON header, and the tensors.
// Pickle, which could run code, is never used. The reader checks every number in the header by the
// rules that ql-checkpoint(5) lists.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/parameters.h"

namespace ql::weights {

struct TensorFile {
  std::vector<nn::NamedTensor> tensors;         // in the order of their offsets
  std::map<std::string, std::string> metadata;  // "__metadata__"
  std::string where;                            // the file's name, for messages

  bool has(const std::string& name) const { return find(name) != nullptr; }
  // If the tensor is missing, throws a FormatError that names the file and the tensor.
  const at::Tensor& at(const std::string& name) const;

 private:
  const at::Tensor* find(const std::string& name) const;
};

// Reads a file with the dtypes F32, F64, F16, BF16, I64, I32, U8 and BOOL. Its tensors become
// contiguous tensors on the CPU. A tensor with the name, dtype and shape of a contiguous tensor on
// the CPU in `in_place` is read into that one, so that a large file needs no second copy. Throws
// FormatError with the reason; then tensors in `in_place` may have been overwritten.
TensorFile read_safetensors(const std::filesystem::path& path,
                            const std::vector<nn::NamedTensor>& in_place = {});

// Writes durably and atomically (base/atomic_file.h). Tensors are written in the given order; they
// may be on any device and have any strides. Throws Error if a name occurs twice or is
// "__metadata__", or if a dtype is not listed above.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<nn::NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace ql::weights
