// Target: command lines of qltok, qlbin, qlctx and of a table with every kind of option. Arguments
// end with a NUL.
#include "base/options.h"

#include "fuzz/fuzz.h"
#include "tables.h"
#include "unit/sample_table.h"

namespace ql::fuzz {

namespace {

// The getters must not fail for any accepted command line.
void read(const Options& options, const Option& option) {
  const std::string& name = option.name;
  options.given(name);
  if (option.type == OptionType::kFlag) {
    options.flag(name);
  } else if (option.repeatable && option.type != OptionType::kInteger &&
             option.type != OptionType::kIntegerList) {
    options.texts(name);
  } else if (option.type == OptionType::kIntegerList || option.repeatable) {
    for (const std::int64_t value : options.integers(name)) {
      require(value >= option.minimum && value <= option.maximum, "numbers are in their range");
    }
  } else if (!options.has(name)) {
    return;
  } else if (option.type == OptionType::kInteger) {
    const std::int64_t value = options.integer(name);
    require(value >= option.minimum && value <= option.maximum, "numbers are in their range");
  } else if (option.type == OptionType::kReal) {
    options.real(name);
  } else {
    options.text(name);
  }
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  const Input input = input_of(data, size);
  static const ql::ToolTable tables[] = {qltok_table(), qlbin_table(), qlctx_table(),
                                         ql::test::sample_table()};
  const std::vector<std::string> arguments = split_at_nul(input.bytes);
  try {
    const ql::Options options = ql::parse_options(tables[input.mode % 4], arguments);
    for (const ql::Option& option : options.command().options) read(options, option);
    options.resolved();
    ++taken_inputs;
  } catch (const ql::UsageError&) {
    // This is the only exception that a command line may cause.
  }
  return 0;
}
