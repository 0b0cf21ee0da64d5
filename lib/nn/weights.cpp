#include "nn/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/model_file.h"

namespace ql::nn {
namespace {

// What is wrong with `source` as values for `target`; empty when nothing is.
std::string find_fault(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) {
    return fmt::format("expected shape [{}], found [{}]", fmt::join(target.sizes(), ", "),
                       fmt::join(source.sizes(), ", "));
  }
  if (!source.is_floating_point()) {
    return "expected floating-point numbers";
  }
  // Checked as the model will hold them: a large float64 may not fit its float32.
  if (!at::isfinite(source.to(target.options())).all().item<bool>()) {
    return "it holds NaN or infinite values";
  }
  return "";
}

}  // namespace

void load_weights(Model& model, const TensorFile& file, const std::string& ignore_prefix) {
  std::vector<std::string> faults;
  std::set<std::string> known;
  for (const NamedTensor& parameter : model.parameters()) {
    known.insert(parameter.name);
    const std::string fault = file.has(parameter.name)
                                  ? find_fault(file.at(parameter.name), parameter.tensor)
                                  : "missing";
    if (!fault.empty()) {
      faults.push_back(fmt::format("'{}': {}", parameter.name, fault));
    }
  }
  for (const NamedTensor& tensor : file.tensors) {
    const bool ignored = !ignore_prefix.empty() && tensor.name.rfind(ignore_prefix, 0) == 0;
    if (!ignored && known.count(tensor.name) == 0) {
      faults.push_back(fmt::format("'{}': the network has no such tensor", tensor.name));
    }
  }
  if (!faults.empty()) {
    constexpr std::size_t kShown = 8;
    const std::size_t more = faults.size() - std::min(faults.size(), kShown);
    faults.resize(faults.size() - more);
    throw FormatError(
        file.where,
        fmt::format("the weights do not fit the network: {}{}", fmt::join(faults, ", "),
                    more > 0 ? fmt::format(" and {} more", more) : ""),
        "use the model.json that belongs to these weights");
  }
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : model.parameters()) {
    at::Tensor target = parameter.tensor;
    target.copy_(file.at(parameter.name));
  }
}

Model load_model(const std::filesystem::path& folder, const at::TensorOptions& options) {
  Model model(net::read_model_file(folder).network, options);
  load_weights(model, read_safetensors(folder / "model.safetensors"));
  return model;
}

}  // namespace ql::nn
