// Target: the state of a training, "state" in state.json of ql-checkpoint(5).
#include "train/state.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  const auto read = [](std::string_view text) {
    const ql::Json json = ql::parse_json(text, "state.json");
    return ql::train::state_from_json(ql::JsonObject(json, "state.json"));
  };
  ql::train::TrainingState state;
  if (!accepted([&] { state = read(text_of(data, size)); })) return 0;
  ++taken_inputs;
  const ql::Json json = state_to_json(state);
  require(state_to_json(read(ql::dump_json(json))) == json, "what is written again reads the same");
  return 0;
}
