// Functions of libraries that a build may or may not have.
#pragma once

#include <dlfcn.h>

namespace ql::machine {

// The function of this name in the libraries that are loaded; nullptr when none has it.
template <typename Function>
Function* library_symbol(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace ql::machine
