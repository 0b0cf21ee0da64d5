// Options that several tools have: in the same words everywhere.
#pragma once

#include <string>

#include "base/options.h"

namespace ql {

// --threads, as threads_or_cores() of base/cores.h understands it. `remark` follows its help.
Option threads_option(const std::string& remark);

// --timeout of several processes, in seconds.
Option timeout_option();

}  // namespace ql
