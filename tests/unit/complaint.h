// Catches what a call throws, for tests that look at the message.
#pragma once

#include <string>

#include "base/error.h"

namespace ql::test {

// The message of the exception of this kind that `function` throws, "" when it throws none.
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
