// Target: base/json.h, the reader that all formats with JSON use.
#include "base/json.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  const std::string_view text = text_of(data, size);
  ql::Json json;
  if (!accepted([&] { json = ql::parse_json(text, "f.json"); })) return 0;
  ++taken_inputs;
  // The strict reader accepts less than nlohmann's own, and gives the same result.
  const ql::Json oracle = ql::Json::parse(text, nullptr, false);
  require(!oracle.is_discarded() && oracle == json, "nlohmann_json reads the same");
  require(ql::parse_json(ql::dump_json(json), "f.json") == json, "what is written reads the same");
  return 0;
}
