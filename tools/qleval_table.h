// The options of qleval.
#pragma once

#include "base/options.h"

const ql::ToolTable& qleval_table();
