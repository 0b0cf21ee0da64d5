// Puts into words whatever was thrown.
#pragma once

#include <exception>
#include <string>

namespace ql {

// An Error says it itself. Of LibTorch's errors the first line says what, the rest is a stack. When
// memory ran out, what to do about it is added.
std::string failure_text(const std::exception& error);

}  // namespace ql
