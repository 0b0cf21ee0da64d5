// Reads the options of qlctx that describe networks and lengths, also those of qlctx plan.

#include "qlctx_report.h"

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/tool.h"
#include "installed.h"
#include "net/model_file.h"
#include "net/plan.h"

namespace ql::ctx {

namespace {

// If the command line gives any size, it must give all of these.
const std::vector<std::string> kNeededSizes{"d-model", "n-head", "d-head", "d-inner"};

std::vector<std::int64_t> scales_from_options(const Options& options,
                                              net::Architecture architecture) {
  if (options.given("layers")) {
    if (options.given("scales")) {
      throw UsageError("--layers", "given together with --scales", "leave one of them out");
    }
    if (net::has_scales(architecture)) {
      throw UsageError(
          "--layers",
          fmt::format("--arch {} divides its layers into scales", net::to_short_text(architecture)),
          "use --scales and --output-layers");
    }
    return {options.integer("layers")};
  }
  if (options.given("scales")) return options.integers("scales");
  return net::has_scales(architecture) ? std::vector<std::int64_t>{3, 3}
                                       : std::vector<std::int64_t>{8};
}

// Puts the sizes of size_options() into `network`. Returns false when none of these options was
// given. Otherwise throws UsageError when an option of kNeededSizes is missing.
bool read_sizes(const Options& options, net::Network& network) {
  const std::vector<Option> sizes = size_options();
  if (std::none_of(sizes.begin(), sizes.end(),
                   [&](const Option& size) { return options.given(size.name); })) {
    return false;
  }
  for (const std::string& name : kNeededSizes) {
    if (!options.given(name)) {
      throw UsageError("--" + name, "is missing",
                       "give --d-model, --n-head, --d-head and --d-inner together, to count "
                       "parameters and operations");
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

// Throws UsageError for --convolution without the architecture that it belongs to.
void check_convolution(const Options& options, bool compressive) {
  if (options.flag("convolution") && !compressive) {
    throw UsageError("--convolution", "applies to --arch compressive only",
                     "give --arch compressive, or leave --convolution out");
  }
}

// Throws UsageError for --rate if none of the architectures `names` compresses states.
void check_rate(const Options& options, const std::vector<std::string>& names) {
  const bool compresses = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    const auto architecture = value_named<net::Architecture>(name, "--arch");
    return net::has_scales(architecture) || architecture == net::Architecture::kCompressive;
  });
  if (options.given("rate") && !compresses) {
    throw UsageError("--rate", "applies to --arch ql, compressive and multiscale only",
                     "give one of these, or leave --rate out");
  }
}

// Throws UsageError when an option of `names` or size_options() was given, because --`source` names
// a file with the same information. --vocab-size is allowed with a preset.
void refuse_beside_file(const Options& options, Sources& sources, const std::string& source,
                        const std::vector<std::string>& names) {
  const std::string what = "given together with --" + source;
  const char* const remedy = "the file describes the network: leave one of them out";
  options.refuse(names, "--{}", what, remedy);
  const bool preset = sources.of(source).is_preset;
  std::vector<std::string> surplus;
  for (const Option& size : size_options()) {
    if (!preset || size.name != "vocab-size") surplus.push_back(size.name);
  }
  options.refuse(surplus, "--{}", what, remedy);
}

Request request_from_arch(const Options& options) {
  Request request;
  net::Network& network = request.network;
  network.architecture = options.choice<net::Architecture>("arch");
  check_rate(options, {options.text("arch")});
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
    check_convolution(options, network.architecture == net::Architecture::kCompressive);
    network.check();
  }
  if (!options.given("segment")) {
    throw UsageError("--segment", "is missing", "give one or more lengths, as in --segment 4,8");
  }
  return request;
}

constexpr const char* kCutoffsRemedy = "give the preset's cutoffs as numbers";

// Throws UsageError, which names `option`, if the cutoffs are chosen for training data.
void require_cutoffs(const net::Network& network, const std::string& option,
                     const std::string& remedy) {
  if (!network.cutoffs_from_data) return;
  throw UsageError(option,
                   "the preset takes its cutoffs from the training data, so the softmax cannot be "
                   "counted",
                   remedy);
}

Request request_from_file(const Options& options, const std::string& name) {
  Sources sources(options);
  refuse_beside_file(options, sources, name, {"arch", "scales", "layers", "output-layers", "rate"});
  const Source& source = sources.of(name);
  Request request;
  request.has_sizes = true;
  request.network = source.preset.network;
  request.checkpoint = source.checkpoint;
  return request;
}

// The table itself cannot say what its figures leave out.
void note_vocabulary(const net::Network& network) {
  if (network.vocab_size > 0) return;
  log_info("{}, so parameters and operations are without embedding and softmax; give {}",
           network.cutoffs_from_data ? "the preset takes its cutoffs from the training data"
                                     : "the size of the vocabulary is unknown",
           network.cutoffs_from_data ? "its cutoffs as numbers" : "--vocab-size");
}

}  // namespace

Source Sources::read(const std::string& option) const {
  const std::filesystem::path path = preset_file(options_.text(option));
  Source source;
  source.name = path.string();
  if (option == "preset") {
    source.preset = net::read_preset(path, {}, {});
  } else {
    auto file = net::read_preset_or_model(path);
    source.is_preset = std::holds_alternative<net::Preset>(file);
    source.preset = source.is_preset ? std::get<net::Preset>(std::move(file))
                                     : net::preset_of(std::get<net::ModelFile>(file));
  }
  if (!source.is_preset) {
    // The weights beside a file of another name may belong to another network.
    const bool folder = std::filesystem::is_directory(path);
    if (folder || path.filename() == "model.json") {
      source.checkpoint = (folder ? path : folder_of(path)).string();
    }
  } else if (options_.given("vocab-size")) {
    net::Network& network = source.preset.network;
    require_cutoffs(network, "--vocab-size",
                    "leave it out, or give the preset's cutoffs as numbers");
    network.vocab_size = options_.integer("vocab-size");
    network.check();
  }
  return source;
}

const Source& Sources::of(const std::string& option) {
  const auto found = read_.find(option);
  return found != read_.end() ? found->second : read_.emplace(option, read(option)).first->second;
}

std::vector<Option> size_options() {
  return {
      make_integer("d-model",
                   "Width of a state. Parameters and operations are counted if this option and the "
                   "next three are given."),
      make_integer("n-head", "Attention heads of a layer."),
      make_integer("d-head", "Width of a head."),
      make_integer("d-inner", "Inner width of the feed-forward layers."),
      make_integer("vocab-size",
                   "Number of entries in the vocabulary, also for a preset. While it is unknown, "
                   "embedding and softmax are not counted."),
      make_flag("untie-r", "Count the biases u and v for every layer, as with the key untie_r."),
      make_flag("convolution", "Count the learned convolution of a Compressive Transformer.")};
}

std::vector<Option> request_options() {
  const std::vector<Option> network{
      without_default(make_choice("arch", "NAME", "Architecture of the network.", kArchitectures)),
      offering(
          preset_names,
          with_letter('m',
                      make_option("model", OptionType::kFile, "CHECKPOINT|PRESET",
                                  "Take the network and its training lengths from this checkpoint "
                                  "folder, its model.json, or a preset: a file, or the name of an "
                                  "installed one."))),
      offering(preset_names,
               make_option("preset", OptionType::kFile, "PRESET",
                           "Take the network and its training lengths from this preset. A "
                           "checkpoint counts as a preset: without vocabulary and weights.")),
      make_integers("segment", "N,...",
                    "Segment lengths n_s in tokens. With --model or --preset the default is the "
                    "training length."),
      make_integers("memory", "N,...",
                    "Memory lengths n_m in states of scale 1. With --model or --preset the default "
                    "is the training length, otherwise 0."),
      make_integers("compressed-memory", "N,...",
                    "Lengths n_cm of the Compressive Transformer's compressed memory in states. "
                    "The default is as for --memory."),
      make_integers("scales", "N,...",
                    "Number of layers of every scale, the finest scale first. The defaults are "
                    "those of the paper: 3,3 for ql and multiscale, 8 for the others."),
      make_integer("layers",
                   "Number of layers of an architecture with one scale, the same as --scales N."),
      make_integer("output-layers",
                   "Number of layers that read the average of all scales. The defaults are those "
                   "of the paper: 2 for ql and multiscale, none for the others."),
      make_option("rate", OptionType::kInteger, "C",
                  "Compression rate: this many states are compressed into one.", "2")};
  return joined(network, size_options());
}

Request make_request(const Options& options) {
  const bool model = options.given("model"), preset = options.given("preset");
  if (model && preset) {
    throw UsageError("--preset", "given together with --model", "leave one of them out");
  }
  if (!model && !preset && !options.given("arch")) {
    throw UsageError("", "no network is given", "give --arch, --model or --preset");
  }
  Request request = model    ? request_from_file(options, "model")
                    : preset ? request_from_file(options, "preset")
                             : request_from_arch(options);
  if (request.has_sizes) note_vocabulary(request.network);
  request.lengths = net::all_lengths({options.integers("segment"), options.integers("memory"),
                                      options.integers("compressed-memory")},
                                     request.network.lengths);
  return request;
}

namespace {

// Returns the sizes of the paper's SimpleBooks-2 networks (appendix E, table 4).
net::Network paper_sizes() {
  net::Network network;
  network.vocab_size = 11492;
  network.d_model = 256;
  network.n_head = 4;
  network.d_head = 64;
  network.d_inner = 1024;
  return network;
}

// Returns the option that names the file with the sizes of the searched networks, or "".
std::string option_with_sizes(const Options& options) {
  for (const char* source : {"model", "preset"}) {
    if (options.given(source)) return source;
  }
  const bool sizes = std::any_of(kNeededSizes.begin(), kNeededSizes.end(),
                                 [&](const std::string& name) { return options.given(name); });
  return options.given("relative-to") && !sizes ? "relative-to" : "";
}

// The network is not changed: the search varies only its lengths.
Search search_of_model(const Options& options, Sources& sources) {
  refuse_beside_file(options, sources, "model", {"preset", "arch", "layers", "rate"});
  const net::Network& network = sources.of("model").preset.network;
  note_vocabulary(network);
  return {{net::to_short_text(network.architecture), {network}}};
}

Search search_of_family(const Options& options, Sources& sources) {
  net::Network network;
  std::int64_t layers = options.integer("layers");
  if (const std::string source = option_with_sizes(options); !source.empty()) {
    refuse_beside_file(options, sources, source, {});
    network = sources.of(source).preset.network;
    layers = options.given("layers") ? layers : network.layers();
  } else if (!read_sizes(options, network)) {
    log_info(
        "parameters and operations are counted for the sizes of the paper's SimpleBooks-2 "
        "networks; for yours give --preset, --model, or --d-model and the other sizes");
    network = paper_sizes();
  }
  note_vocabulary(network);
  if (!network.scale_widths.empty()) {
    log_info(
        "with scale_widths [{}], networks of several scales are searched only if their number of "
        "scales is {}",
        fmt::join(network.scale_widths, ", "), network.scale_widths.size());
  }
  std::vector<std::string> names = options.texts("arch");
  if (names.empty()) names = kArchitectures;
  const auto named = [&names](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  check_convolution(options, named(net::to_short_text(net::Architecture::kCompressive)));
  check_rate(options, names);
  Search search;
  for (const std::string& name : kArchitectures) {
    if (named(name)) {
      search.push_back(
          {name, net::divisions_of_layers(network, value_named<net::Architecture>(name, "--arch"),
                                          layers, options.integers("rate"))});
    }
  }
  return search;
}

}  // namespace

Search make_search(const Options& options, Sources& sources) {
  return options.given("model") ? search_of_model(options, sources)
                                : search_of_family(options, sources);
}

Goal make_goal(const Options& options, const Search& search, Sources& sources) {
  const std::vector<std::string> goals{"context", "cost", "budget"};
  const auto given = [&](const std::string& name) { return options.given(name); };
  const auto first = std::find_if(goals.begin(), goals.end(), given);
  if (first == goals.end()) {
    throw UsageError("", "no goal is given",
                     "give --context, --cost with --relative-to, or --budget");
  }
  options.refuse({first + 1, goals.end()}, "--{}", "given together with --" + *first,
                 "leave one of them out");
  Goal goal;
  const auto check_vocabulary = [](const net::Network& network) {
    if (network.vocab_size > 0) return;
    throw UsageError("--vocab-size", "is missing",
                     "costs are compared with the softmax included: give the number of entries in "
                     "the vocabulary");
  };
  if (given("relative-to")) {
    net::Network network = sources.of("relative-to").preset.network;
    require_cutoffs(network, "--relative-to", kCutoffsRemedy);
    if (network.vocab_size == 0 && given("model")) {
      network.vocab_size = search.front().networks.front().vocab_size;
      network.check();
    }
    check_vocabulary(network);
    goal.unit = net::cost(network, network.lengths).training_flops_per_token;
  } else if (given("cost")) {
    throw UsageError("--relative-to", "is missing",
                     "give the preset or checkpoint whose cost is 1");
  }
  if (given("context")) goal.context = options.integer("context");
  if (given("cost")) goal.operations = options.real("cost") * goal.unit;
  if (given("budget")) goal.operations = static_cast<double>(options.integer("budget"));
  if (goal.unit > 0 || goal.operations > 0) {
    for (const Family& family : search) {
      for (const net::Network& network : family.networks) {
        require_cutoffs(network, "--" + *first, kCutoffsRemedy);
        check_vocabulary(network);
      }
    }
  }
  return goal;
}

Source source_of_sizes(const Options& options, Sources& sources) {
  const std::string option = option_with_sizes(options);
  return option.empty() ? Source() : sources.of(option);
}

}  // namespace ql::ctx
