#include "machine/vector_version.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/error.h"

namespace ql::machine {
namespace {

struct Name {
  std::string_view text;
  VectorVersion version;
};

// The widest first.
constexpr Name kNames[] = {{"avx512", VectorVersion::kAvx512},
                           {"avx2", VectorVersion::kAvx2},
                           {"portable", VectorVersion::kPortable}};

}  // namespace

VectorVersion choose_vector_version(const char* name) {
  const std::string_view wanted = name == nullptr ? "" : name;
  std::string names;
  for (const Name& known : kNames) {
    if (has_vector_version(known.version)) {
      if (wanted.empty() || wanted == known.text) return known.version;
      names += fmt::format("{}, ", known.text);
    }
  }
  throw UsageError(
      kVectorVersionVariable,
      fmt::format("'{}' is no version of our kernels that this processor runs", wanted),
      fmt::format("use one of {}or leave it out", names));
}

}  // namespace ql::machine
