// The options of qlbin.
#pragma once

#include "base/options.h"

const ql::ToolTable& qlbin_table();
