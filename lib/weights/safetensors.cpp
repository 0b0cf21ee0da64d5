// Checks the header of a safetensors file, and reads and writes such files.

#include "weights/safetensors.h"

#include <set>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/file_kind.h"

namespace ql::weights {

struct SafetensorsType {
  std::string_view name;
  at::ScalarType type;
  std::int64_t bytes;
};

constexpr SafetensorsType kSafetensorsTypes[] = {
    {"F32", at::ScalarType::Float, 4}, {"F64", at::ScalarType::Double, 8},
    {"F16", at::ScalarType::Half, 2},  {"BF16", at::ScalarType::BFloat16, 2},
    {"I64", at::ScalarType::Long, 8},  {"I32", at::ScalarType::Int, 4},
    {"U8", at::ScalarType::Byte, 1},   {"BOOL", at::ScalarType::Bool, 1},
};
constexpr const char* kSafetensorsTypeNames = "F32, F64, F16, BF16, I64, I32, U8 or BOOL";

// The reference implementation limits the header to this many bytes.
constexpr std::uint64_t kSafetensorsHeaderLimit = 100'000'000;
constexpr const char* kSafetensorsMetadata = "__metadata__";

namespace {

// No tensor of a network has this many dimensions. The limit bounds the work that a hostile header
// can cause.
constexpr std::size_t kDimensionLimit = 16;
// This limits the number of tensors for the same reason: a search by name takes linear time.
constexpr std::size_t kTensorLimit = 100'000;

struct Entry {
  std::string name;
  SafetensorsType type;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // offset in the tensors' bytes, after the header
  std::int64_t end = 0;
};

SafetensorsType read_type(const std::string& name, const std::string& where) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    if (type.name == name) return type;
  }
  throw FormatError(where,
                    fmt::format("expected dtype {}, found '{}'", kSafetensorsTypeNames, name));
}

// Returns the size of a tensor in bytes. Throws FormatError for an invalid shape. A shape whose
// strides overflow is invalid even if a dimension is 0.
std::int64_t byte_size(const Entry& entry, const std::string& where) {
  if (entry.shape.size() > kDimensionLimit) {
    throw FormatError(where, fmt::format("expected at most {} dimensions, found {}",
                                         kDimensionLimit, entry.shape.size()));
  }
  std::int64_t bytes = entry.type.bytes;
  bool empty = false;
  for (const std::int64_t length : entry.shape) {
    if (length < 0) {
      throw FormatError(where, fmt::format("shape has the negative length {}", length));
    }
    empty = empty || length == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(length, 1), &bytes)) {
      throw FormatError(where, fmt::format("the shape [{}] is too large for 64 bits",
                                           fmt::join(entry.shape, ", ")));
    }
  }
  return empty ? 0 : bytes;
}

Entry read_entry(const std::string& name, const JsonObject& json) {
  json.refuse_unknown({"dtype", "shape", "data_offsets"});
  Entry entry{name, read_type(json.text("dtype"), json.where()), json.integers("shape")};
  const std::vector<std::int64_t> offsets = json.integers("data_offsets");
  if (offsets.size() != 2) {
    throw FormatError(json.where(),
                      fmt::format("expected two data_offsets, found {}", offsets.size()));
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const std::int64_t expected = byte_size(entry, json.where());
  if (entry.begin < 0 || entry.end < entry.begin) {
    throw FormatError(
        json.where(),
        fmt::format(
            "expected data_offsets that begin at 0 or later and do not decrease, found {} to {}",
            entry.begin, entry.end));
  }
  if (entry.end - entry.begin != expected) {
    throw FormatError(json.where(),
                      fmt::format("dtype and shape need {} bytes, but data_offsets are {} to {}",
                                  expected, entry.begin, entry.end));
  }
  return entry;
}

constexpr const char* kRemedy =
    "if this is a safetensors file, it is damaged or incomplete: copy it again";

// Checks the header's length against the file's size, and returns the header's text.
std::string header_text(const RandomAccessFile& file, const std::string& where) {
  const auto size = static_cast<std::uint64_t>(file.size());
  unsigned char bytes[sizeof(std::uint64_t)];
  if (size < sizeof bytes) {
    throw FormatError(where, fmt::format("expected at least 8 bytes, found {}", size), kRemedy);
  }
  file.read(0, bytes, sizeof bytes);
  const auto length = load_little_endian<std::uint64_t>(bytes);
  if (length > kSafetensorsHeaderLimit) {
    throw FormatError(
        where,
        fmt::format("header length {} is above the limit of {}", length, kSafetensorsHeaderLimit),
        kRemedy);
  }
  if (length > size - sizeof bytes) {
    throw FormatError(where,
                      fmt::format("the header's length is {}, but only {} bytes follow", length,
                                  size - sizeof bytes),
                      kRemedy);
  }
  std::string text(length, '\0');
  file.read(sizeof bytes, text.data(), text.size());
  if (text.empty() || text.front() != '{') {
    throw FormatError(where, "the header does not begin with '{'", kRemedy);
  }
  return text;
}

void read_metadata(const Json& json, const std::string& where, TensorFile& file) {
  const JsonObject texts(json, where);
  for (const auto& pair : json.items()) {
    // texts.text(key) would search through all keys for each of them.
    if (!pair.value().is_string()) {
      throw FormatError(fmt::format("{}: {}", where, pair.key()), "expected a string");
    }
    file.metadata[pair.key()] = pair.value().get<std::string>();
  }
}

std::vector<Entry> read_header(std::string_view text, std::uint64_t data_size, TensorFile& file) {
  const std::string where = file.where + ": header";
  const Json json = parse_json(text, where);  // an object, as it begins with '{'
  if (json.size() > kTensorLimit) {
    throw FormatError(
        where, fmt::format("expected at most {} entries, found {}", kTensorLimit, json.size()));
  }
  std::vector<Entry> entries;
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const std::string place = fmt::format("{}: {}", where, name);
    if (name == kSafetensorsMetadata) {
      read_metadata(item.value(), place, file);
    } else {
      entries.push_back(read_entry(name, JsonObject(item.value(), place)));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::int64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      throw FormatError(
          where + ": " + entry.name,
          fmt::format("expected data to begin at {}, found {}: tensors overlap or leave a gap",
                      position, entry.begin));
    }
    position = entry.end;
  }
  if (static_cast<std::uint64_t>(position) != data_size) {
    throw FormatError(file.where,
                      fmt::format("the tensors have {} bytes, but the header is followed by {}",
                                  position, data_size),
                      "the file was cut off or something was appended");
  }
  return entries;
}

// Returns the tensor of `in_place` that can hold the entry's bytes, or a new one.
at::Tensor destination(const Entry& entry, const std::vector<nn::NamedTensor>& in_place) {
  for (const auto& [name, tensor] : in_place) {
    const bool fits = name == entry.name && tensor.sizes() == entry.shape &&
                      tensor.scalar_type() == entry.type.type;
    if (fits && tensor.is_cpu() && tensor.is_contiguous()) return tensor;
  }
  return at::empty(entry.shape, entry.type.type);
}

// `data` is the offset of the tensors' bytes in the file.
at::Tensor read_tensor(const Entry& entry, const RandomAccessFile& file, std::int64_t data,
                       const std::string& where, const std::vector<nn::NamedTensor>& in_place) {
  at::Tensor tensor = destination(entry, in_place);
  const auto size = static_cast<std::size_t>(entry.end - entry.begin);
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  file.read(data + entry.begin, bytes, size);
  if (entry.type.type == at::ScalarType::Bool &&
      std::any_of(bytes, bytes + size, [](char byte) { return byte != 0 && byte != 1; })) {
    throw FormatError(where + ": " + entry.name, "a BOOL is neither 0 nor 1");
  }
  return tensor;
}

}  // namespace

const at::Tensor* TensorFile::find(const std::string& name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(),
                   [&](const nn::NamedTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &found->tensor;
}

const at::Tensor& TensorFile::at(const std::string& name) const {
  const at::Tensor* tensor = find(name);
  if (tensor == nullptr) throw FormatError(where, fmt::format("tensor '{}' is missing", name));
  return *tensor;
}

TensorFile read_safetensors(const std::filesystem::path& path,
                            const std::vector<nn::NamedTensor>& in_place) {
  const RandomAccessFile opened(path);
  TensorFile file;
  file.where = path.string();
  check_kind(opened.head(), Content::kWeights, file.where);
  const std::string header = header_text(opened, file.where);
  const auto data = static_cast<std::int64_t>(sizeof(std::uint64_t) + header.size());
  for (const Entry& entry :
       read_header(header, static_cast<std::uint64_t>(opened.size() - data), file)) {
    file.tensors.push_back({entry.name, read_tensor(entry, opened, data, file.where, in_place)});
  }
  return file;
}

static const SafetensorsType& type_of(const nn::NamedTensor& tensor, const std::string& where) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    if (type.type == tensor.tensor.scalar_type()) return type;
  }
  throw Error(where,
              fmt::format("tensor '{}' has the type {}, which cannot be written here", tensor.name,
                          c10::toString(tensor.tensor.scalar_type())),
              fmt::format("convert it to {}", kSafetensorsTypeNames));
}

static std::string make_header(const std::vector<nn::NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata,
                               const std::string& where) {
  // The header is joined from strings, without a JSON tree. The JSON library needs memory to
  // destroy a tree, and ends the process if there is none.
  const auto quoted = [](const std::string& value) { return Json(value).dump(); };
  std::vector<std::string> entries;
  if (!metadata.empty()) {
    std::vector<std::string> texts;
    texts.reserve(metadata.size());
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
      throw Error(
          where,
          fmt::format("the name '{}' {}", tensor.name,
                      tensor.name == kSafetensorsMetadata ? "is reserved for the file's metadata"
                                                          : "occurs twice"),
          "give the tensor another name");
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

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<nn::NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata, path.string());
  AtomicFile file(path);
  char length[sizeof(std::uint64_t)];
  store_little_endian(length, std::uint64_t{header.size()});
  file.write(length, sizeof(length));
  file.write(header);
  for (const nn::NamedTensor& tensor : tensors) {
    const at::Tensor bytes = tensor.tensor.detach().to(at::kCPU).contiguous();
    file.write(bytes.data_ptr(), bytes.nbytes());
  }
  file.commit();
}

}  // namespace ql::weights
