#include "libexec_program.h"

#include <fmt/format.h>

#include "base/child.h"
#include "base/error.h"

std::filesystem::path libexec_program(const std::string& name) {
  // QL_LIBEXEC is relative to the folder of the tools.
  std::filesystem::path path = (ql::program_folder() / QL_LIBEXEC / name).lexically_normal();
  if (std::filesystem::exists(path)) return path;
  throw ql::Error(path.string(), "is not there",
                  "this needs an installation that was built with LibTorch (QL_TORCH=ON); move bin "
                  "and libexec together");
}
