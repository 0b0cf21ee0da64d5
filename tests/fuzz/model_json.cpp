// Target: model.json of ql-checkpoint(5), presets and the public code's config.json, in modes 0, 1
// and 2. After a NUL, overrides of a preset follow, as for --set.
#include "fuzz/fuzz.h"
#include "net/context.h"
#include "net/cost.h"
#include "net/model_file.h"

namespace ql::fuzz {

namespace {

net::Network read(unsigned mode, const std::string& name,
                  const std::vector<std::string>& overrides) {
  if (mode == 0) return net::read_model_file(name).network;
  if (mode == 1) return net::read_preset(name, overrides, {"batch", "learning_rate"}).network;
  const Json json = read_json(name);
  net::is_public_config(json);
  return net::network_from_public_config(JsonObject(json, name));
}

void check(const net::Network& network) {
  const std::string text = dump_json(net::network_to_json(network));
  const Json json = parse_json(text, "network");
  const net::Network again = net::network_from_json(JsonObject(json, "network"));
  require(dump_json(net::network_to_json(again)) == text, "what is written again reads the same");
  // Counts of the largest network must not overflow.
  const net::Cost cost = net::cost(network, network.lengths);
  require(cost.parameters > 0 && cost.memory_states >= 0, "sizes have bounds");
  if (net::has_paper_context(network)) {
    const net::ContextLength context = net::paper_context(network, network.lengths);
    require(context.minimum >= 0 && context.maximum > context.minimum, "contexts are positive");
  }
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static MemoryFile file;
  Input input = input_of(data, size);
  file.put(take(input.bytes, input.bytes.find('\0')));
  take(input.bytes, 1);
  ql::net::Network network;
  const bool good =
      accepted([&] { network = read(input.mode % 3, file.name(), split_at_nul(input.bytes)); });
  if (!good) return 0;
  ++taken_inputs;
  check(network);
  return 0;
}
