#include "qlctx_request.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/option_builders.h"
#include "net/model_file.h"
#include "preset_file.h"

namespace ql::ctx {
namespace {

// Parameters and operations cannot be counted without these.
const std::vector<std::string> kNeededSizes{"d-model", "n-head", "d-head", "d-inner"};

std::vector<std::int64_t> scales_from_options(const Options& options,
                                              net::Architecture architecture) {
  if (options.given("layers")) {
    if (options.given("scales")) {
      throw UsageError("--layers", "given together with --scales", "leave one of them out");
    }
    if (net::has_scales(architecture)) {
      throw UsageError("--layers", "this architecture has scales",
                       "use --scales and --output-layers");
    }
    return {options.integer("layers")};
  }
  if (options.given("scales")) return options.integers("scales");
  return net::has_scales(architecture) ? std::vector<std::int64_t>{3, 3}
                                       : std::vector<std::int64_t>{8};
}

Request request_from_arch(const Options& options) {
  Request request;
  net::Network& network = request.network;
  network.architecture = value_named<net::Architecture>(options.text("arch"), "--arch");
  network.scales = scales_from_options(options, network.architecture);
  if (options.given("output-layers")) {
    network.output_layers = options.integer("output-layers");
  } else {
    network.output_layers = net::has_scales(network.architecture) ? 2 : 0;
  }
  network.rate = options.integer("rate");
  network.check_layers();
  request.has_sizes = read_sizes(options, network);
  if (request.has_sizes) {
    if (options.flag("convolution") && network.architecture != net::Architecture::kCompressive) {
      throw UsageError("--convolution", "given for another architecture than compressive",
                       "the others pool by maximum or mean, which has no parameters");
    }
    network.check();
  }
  if (!options.given("segment")) {
    throw UsageError("--segment", "missing", "give one or more lengths, as in --segment 4,8");
  }
  return request;
}

Request request_from_file(const Options& options, const std::string& source) {
  refuse_beside_file(options, source, {"arch", "scales", "layers", "output-layers", "rate"});
  Request request;
  request.has_sizes = true;
  request.checkpoint = source == "model" ? options.text("model") : "";
  request.network = source == "model"
                        ? net::read_model_file(options.text("model")).network
                        : net::read_preset(preset_file(options.text("preset")), {}, {}).network;
  return request;
}

std::vector<std::int64_t> lengths_of(const Options& options, const std::string& name,
                                     std::int64_t fallback) {
  return options.given(name) ? options.integers(name) : std::vector<std::int64_t>{fallback};
}

}  // namespace

bool read_sizes(const Options& options, net::Network& network) {
  const std::vector<Option> sizes = size_options();
  if (std::none_of(sizes.begin(), sizes.end(),
                   [&](const Option& size) { return options.given(size.name); })) {
    return false;
  }
  for (const std::string& name : kNeededSizes) {
    if (!options.given(name)) {
      throw UsageError("--" + name, "missing",
                       "parameters and operations are counted from --d-model, --n-head, --d-head "
                       "and --d-inner together");
    }
  }
  network.d_model = options.integer("d-model");
  network.n_head = options.integer("n-head");
  network.d_head = options.integer("d-head");
  network.d_inner = options.integer("d-inner");
  if (options.given("vocab-size")) network.vocab_size = options.integer("vocab-size");
  network.untie_r = options.flag("untie-r");
  if (options.flag("convolution")) network.pool = net::Pool::kConvolution;
  return true;
}

void refuse_beside_file(const Options& options, const std::string& source,
                        const std::vector<std::string>& names) {
  std::vector<std::string> surplus = names;
  for (const Option& size : size_options()) surplus.push_back(size.name);
  for (const std::string& name : surplus) {
    if (options.given(name)) {
      throw UsageError("--" + name, "given together with --" + source,
                       "the file describes the network: leave one of them out");
    }
  }
}

std::vector<Option> size_options() {
  return {make_integer("d-model",
                       "Width of a state. With the next three options, parameters and operations "
                       "are counted."),
          make_integer("n-head", "Attention heads of a layer."),
          make_integer("d-head", "Width of a head."),
          make_integer("d-inner", "Inner width of the feed-forward layers."),
          make_integer("vocab-size",
                       "Words in the vocabulary. When left out, embedding and softmax are not "
                       "counted."),
          make_flag("untie-r", "Count biases u and v for every layer, as untie_r does."),
          make_flag("convolution", "Count the learned convolution of a Compressive Transformer.")};
}

std::vector<Option> request_options() {
  const std::vector<Option> network{
      without_default(make_choice("arch", "NAME", "Architecture of the network.", kArchitectures)),
      with_letter('m', make_option("model", OptionType::kFile, "CHECKPOINT",
                                   "Take the network and its training lengths from this checkpoint "
                                   "folder or its model.json.")),
      offering(
          preset_names,
          make_option(
              "preset", OptionType::kFile, "PRESET",
              "Take the network and its training lengths from this preset: a file, or the name "
              "of an installed one.")),
      make_integers("segment", "N,...",
                    "Segment lengths n_s in tokens. With --model or --preset, those of training "
                    "when left out."),
      make_integers("memory", "N,...",
                    "Memory lengths n_m in states of scale 1. When left out, that of training with "
                    "--model or --preset, otherwise 0."),
      make_integers("compressed-memory", "N,...",
                    "Lengths n_cm of the Compressive Transformer's compressed memory in states. "
                    "When left out, as for --memory."),
      make_integers("scales", "N,...",
                    "Layers of every scale, the finest first. When left out, those of the paper: "
                    "3,3 for ql and multiscale, 8 for the others."),
      make_integer("layers", "Layers of an architecture with one scale, the same as --scales N."),
      make_integer("output-layers",
                   "Layers after the accumulation. When left out, those of the paper: 2 for ql and "
                   "multiscale; the others have none."),
      make_option("rate", OptionType::kInteger, "C", "Compression rate: states that become one.",
                  "2")};
  return joined(network, size_options());
}

Request make_request(const Options& options) {
  std::vector<std::string> sources;
  for (const char* name : {"arch", "model", "preset"}) {
    if (options.given(name)) sources.emplace_back(name);
  }
  if (sources.empty()) throw UsageError("", "no network", "give --arch, --model or --preset");
  if (options.given("model") && options.given("preset")) {
    throw UsageError("--preset", "given together with --model", "leave one of them out");
  }
  Request request = sources == std::vector<std::string>{"arch"}
                        ? request_from_arch(options)
                        : request_from_file(options, sources.back());
  const net::Lengths& own = request.network.lengths;
  for (const std::int64_t segment : lengths_of(options, "segment", own.segment)) {
    for (const std::int64_t memory : lengths_of(options, "memory", own.memory)) {
      for (const std::int64_t compressed :
           lengths_of(options, "compressed-memory", own.compressed_memory)) {
        request.lengths.push_back({segment, memory, compressed});
      }
    }
  }
  return request;
}

}  // namespace ql::ctx
