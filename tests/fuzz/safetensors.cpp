// Target: safetensors files of any program. Modes: 0 the bytes are the file; n > 0 they are the
// header, which gets its length in front and 4 * (n - 1) bytes of tensors after it.
#include "weights/safetensors.h"
#include "base/bytes.h"
#include "fuzz/fuzz.h"

namespace ql::fuzz {

namespace {

std::string file_of(const Input& input) {
  if (input.mode == 0) return std::string(input.bytes);
  std::string file;
  append_little_endian(file, std::uint64_t{input.bytes.size()});
  return file.append(input.bytes).append(std::size_t{4} * (input.mode - 1), '\1');
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static MemoryFile memory;
  const std::string bytes = file_of(input_of(data, size));
  memory.put(bytes);
  ql::weights::TensorFile file;
  if (!accepted([&] { file = ql::weights::read_safetensors(memory.name()); })) return 0;
  ++taken_inputs;
  std::size_t held = 0;
  for (const ql::nn::NamedTensor& tensor : file.tensors) {
    held += tensor.tensor.nbytes();
    require(tensor.tensor.is_contiguous(), "tensors are contiguous");
    require(file.has(tensor.name), "tensors are found by name");
  }
  const auto header = ql::load_little_endian<std::uint64_t>(bytes.data());
  require(8 + header + held == bytes.size(), "header and tensors fill the file");
  return 0;
}
