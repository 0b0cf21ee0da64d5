// Checks the names, shapes and hashes of a checkpoint's weights, and reads the names that Hugging
// Face Transformers uses.

#include "weights/weights.h"

#include <ATen/core/grad_mode.h>

#include <set>

#include "base/bytes.h"
#include "base/file.h"
#include "net/cost.h"
#include "net/model_file.h"

namespace ql::weights {

// Returns why `target` cannot get the values of `source`; empty if it can.
static std::string find_fault(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) {
    return fmt::format("expected shape [{}], found [{}]", fmt::join(target.sizes(), ", "),
                       fmt::join(source.sizes(), ", "));
  }
  if (!source.is_floating_point()) return "expected floating-point values";
  // The values are checked in the model's dtype: a large float64 value may overflow in float32.
  if (!at::isfinite(source.to(target.options())).all().item<bool>()) {
    return "it holds NaN, infinite or too large values";
  }
  return "";
}

constexpr const char* kRemedy =
    "use the network (model.json, config.json or preset) that belongs to these weights";

constexpr const char* kConstant = "pos_emb.inv_freq";
// The library Hugging Face Transformers puts this before all names of tensors except those of the
// softmax.
constexpr const char* kLibraryPrefix = "transformer.";

// In a state_dict of the public Transformer-XL code, the tensor `name` may be a copy of a
// parameter. Returns this parameter's name, or "".
static std::string tied_to(const std::string& name, const TensorFile& file) {
  const std::pair<const char*, const char*> prefixes[] = {
      {"crit.out_layers.", "word_emb.emb_layers."}, {"crit.out_projs.", "word_emb.emb_projs."}};
  for (const auto& [copy, original] : prefixes) {
    if (name.rfind(copy, 0) == 0) {
      const std::string own = original + name.substr(std::string(copy).size());
      // If the first table is the only one (div_val 1), it serves all clusters.
      return file.has(own) ? own : original + std::string("0");
    }
  }
  for (const char* bias : {"r_w_bias", "r_r_bias"}) {
    const std::string end = std::string(".dec_attn.") + bias;
    if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
      return bias;  // shared by all layers, and listed in each
    }
  }
  return "";
}

// Changes a file of Hugging Face Transformers into one of the public Transformer-XL code. Removes
// kLibraryPrefix from names of tensors, and reverses the rows of crit.cluster_weight and
// crit.cluster_bias, one for each cluster. Does not change other files.
static void drop_library_prefix(TensorFile& file) {
  const std::string prefix = kLibraryPrefix;
  std::set<std::string> names;
  bool is_library = false;
  for (nn::NamedTensor& tensor : file.tensors) {
    if (tensor.name.rfind(prefix, 0) == 0) {
      tensor.name.erase(0, prefix.size());
      is_library = true;
    }
    if (!names.insert(tensor.name).second) {
      throw FormatError(
          file.where,
          fmt::format("'{}' occurs with and without the prefix '{}'", tensor.name, prefix),
          "remove one of the two");
    }
  }
  for (nn::NamedTensor& tensor : file.tensors) {
    const bool of_clusters =
        tensor.name == "crit.cluster_weight" || tensor.name == "crit.cluster_bias";
    if (is_library && of_clusters && tensor.tensor.dim() > 0) tensor.tensor = tensor.tensor.flip(0);
  }
}

// Returns why a tensor that is not a parameter of the network is refused. Returns "" if the tensor
// is kConstant or an exact copy of a parameter: the public Transformer-XL code writes both.
static std::string find_surplus_fault(const nn::NamedTensor& tensor, const TensorFile& file) {
  if (tensor.name == kConstant) return "";
  const std::string original_name = tied_to(tensor.name, file);
  if (original_name.empty() || !file.has(original_name)) return "the network has no such tensor";
  const at::Tensor& original = file.at(original_name);
  const bool same = tensor.tensor.sizes() == original.sizes() &&
                    tensor.tensor.scalar_type() == original.scalar_type() &&
                    at::equal(tensor.tensor, original);
  return same ? ""
              : fmt::format("the network ties this tensor to '{}', but the two differ",
                            original_name);
}

// Throws FormatError if the network has more than kFitsAnywhere weights, and more weights than the
// file has values. This must come before the weights are allocated, because a few bytes of
// model.json can require more weights than memory can hold. For smaller networks load_weights()
// reports the tensors that are wrong.
static void check_count(const net::Network& network, const TensorFile& file) {
  constexpr std::int64_t kFitsAnywhere = std::int64_t{1} << 24;
  std::int64_t numbers = 0;
  for (const nn::NamedTensor& tensor : file.tensors) numbers += tensor.tensor.numel();
  const std::int64_t weights = net::cost(network, network.lengths).parameters;
  if (weights > std::max(numbers, kFitsAnywhere)) {
    throw FormatError(
        file.where,
        fmt::format("the network has {} weights, but the number of values in the file is {}",
                    weights, numbers),
        kRemedy);
  }
}

// Returns the beginning that all names of tensors in the file share, up to a full stop, if no
// parameter of the model has it: programs that wrap a model put such a prefix before the names.
static std::string find_prefix(const nn::Model& model, const TensorFile& file) {
  if (file.tensors.empty()) return "";
  std::string prefix = file.tensors.front().name;
  const auto shorten = [&prefix](const std::string& name) {
    const auto differ = std::mismatch(prefix.begin(), prefix.end(), name.begin(), name.end());
    prefix.erase(differ.first, prefix.end());
  };
  for (const nn::NamedTensor& tensor : file.tensors) shorten(tensor.name);
  prefix.erase(prefix.rfind('.') + 1);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    if (parameter.name.rfind(prefix, 0) == 0) return "";
  }
  return prefix;
}

void load_weights(nn::Model& model, const TensorFile& file) {
  const std::string prefix = find_prefix(model, file);
  if (!prefix.empty()) {
    throw FormatError(
        file.where, fmt::format("all names of tensors begin with '{}'", prefix),
        "write the file again without this prefix, as PUBLISHED WEIGHTS in ql-checkpoint(5) says");
  }
  std::vector<std::string> faults;
  std::set<std::string> known;
  for (const nn::NamedTensor& parameter : model.parameters()) {
    known.insert(parameter.name);
    const std::string fault = file.has(parameter.name)
                                  ? find_fault(file.at(parameter.name), parameter.tensor)
                                  : "missing";
    if (!fault.empty()) faults.push_back(fmt::format("'{}': {}", parameter.name, fault));
  }
  for (const nn::NamedTensor& tensor : file.tensors) {
    if (known.count(tensor.name) != 0) continue;
    const std::string fault = find_surplus_fault(tensor, file);
    if (!fault.empty()) faults.push_back(fmt::format("'{}': {}", tensor.name, fault));
  }
  if (!faults.empty()) {
    // The biases of attention are shared by all layers, or each layer has its own.
    const std::string shared = "r_w_bias", own = "layers.0.dec_attn.r_w_bias";
    const bool shares = file.has(shared);
    const bool only_biases =
        std::all_of(faults.begin(), faults.end(), [](const std::string& fault) {
          return fault.find("r_w_bias'") != fault.npos || fault.find("r_r_bias'") != fault.npos;
        });
    const bool differ = shares ? known.count(own) != 0 : known.count(shared) != 0 && file.has(own);
    constexpr std::size_t kShown = 8;
    const std::size_t more = faults.size() - std::min(faults.size(), kShown);
    faults.resize(faults.size() - more);
    throw FormatError(
        file.where,
        fmt::format("the weights do not fit the network: {}{}", fmt::join(faults, "; "),
                    more > 0 ? fmt::format("; and {} more", more) : ""),
        only_biases && differ ? fmt::format("set untie_r of the network to {}", !shares)
                              : fmt::format("{}, or use other weights", kRemedy));
  }
  const at::NoGradGuard no_grad;
  for (const nn::NamedTensor& parameter : model.parameters()) {
    at::Tensor target = parameter.tensor;
    target.copy_(file.at(parameter.name));
  }
}

static TensorFile read_checked(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "state.json")) {
    net::check_files(folder, {"model.json", "model.safetensors"},
                     "restore the folder from a copy; if the file was changed on purpose, copy "
                     "only model.json and model.safetensors to another folder, and use that one");
  }
  net::require_weights(folder, folder.string());
  TensorFile file = read_safetensors(folder / "model.safetensors");
  drop_library_prefix(file);
  return file;
}

TensorFile read_weights(const std::filesystem::path& checkpoint) {
  const std::filesystem::path folder = net::checkpoint_folder(checkpoint);
  const auto state = [file = folder / "state.json"] {
    try {
      return ql::read_file(file);
    } catch (const Error&) {
      return std::string();
    }
  };
  for (;;) {
    const std::string before = state();
    try {
      return read_checked(folder);
    } catch (const Error&) {
      // A training run may have replaced the checkpoint between the reading of two files.
      if (state() == before) throw;
    }
  }
}

std::string hash_of(const nn::Model& model) {
  ContentHasher hasher;
  for (const nn::NamedTensor& parameter : model.parameters()) {
    const at::Tensor tensor = parameter.tensor.detach().cpu().contiguous();
    hasher.update(tensor.data_ptr(), tensor.nbytes());
  }
  return hasher.digest();
}

nn::Model load_model(const std::filesystem::path& checkpoint, const at::TensorOptions& options) {
  return load_model(checkpoint, net::read_model_file(checkpoint).network, options);
}

nn::Model load_model(const std::filesystem::path& checkpoint, const net::Network& network,
                     const at::TensorOptions& options) {
  const TensorFile file = read_weights(checkpoint);
  check_count(network, file);
  nn::Model model(network, options);
  load_weights(model, file);
  return model;
}

}  // namespace ql::weights
