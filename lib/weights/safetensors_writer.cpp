#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "weights/safetensors.h"
#include "weights/safetensors_type_internal.h"

namespace ql::weights {
namespace {

const SafetensorsType& type_of(const nn::NamedTensor& tensor, const std::string& where) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    if (type.type == tensor.tensor.scalar_type()) return type;
  }
  throw Error(where,
              fmt::format("tensor '{}' has a type that safetensors cannot hold", tensor.name),
              fmt::format("convert it to {}", kSafetensorsTypeNames));
}

std::string make_header(const std::vector<nn::NamedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& where) {
  // There is no tree of JSON, which would need memory to be destroyed.
  const auto quoted = [](const std::string& value) { return Json(value).dump(); };
  std::vector<std::string> entries;
  if (!metadata.empty()) {
    std::vector<std::string> texts;
    for (const auto& [key, value] : metadata) {
      texts.push_back(fmt::format("{}:{}", quoted(key), quoted(value)));
    }
    entries.push_back(
        fmt::format("{}:{{{}}}", quoted(kSafetensorsMetadata), fmt::join(texts, ",")));
  }
  std::set<std::string> names = {kSafetensorsMetadata};
  std::int64_t position = 0;
  for (const nn::NamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw Error(where, fmt::format("the name '{}' is taken", tensor.name),
                  "give every tensor a name of its own");
    }
    const SafetensorsType& type = type_of(tensor, where);
    const std::int64_t end = position + tensor.tensor.numel() * type.bytes;
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  quoted(tensor.name), type.name,
                                  fmt::join(tensor.tensor.sizes(), ","), position, end));
    position = end;
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  // Spaces keep the tensors aligned for readers that map the file.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<nn::NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata, path.string());
  AtomicFile file(path);
  char length[8];
  for (std::size_t i = 0; i < sizeof(length); ++i) {
    length[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  file.write(length, sizeof(length));
  file.write(header);
  for (const nn::NamedTensor& tensor : tensors) {
    const at::Tensor bytes = tensor.tensor.detach().to(at::kCPU).contiguous();
    file.write(bytes.data_ptr(), bytes.nbytes());
  }
  file.commit();
}

}  // namespace ql::weights
