// The command line of qlctx.
#pragma once

#include "base/options.h"

const ql::ToolTable& qlctx_table();
