// Catches the exception of a call, for tests that check its message.
#pragma once

#include <string>

#include "base/error.h"

namespace ql::test {

// Returns the message of the exception of this kind that `function` throws, "" if it throws none.
template <typename Kind = Error, typename Function>
std::string complaint(const Function& function) {
  try {
    function();
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

}  // namespace ql::test
