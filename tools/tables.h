// Declares the command lines of the tools.
#pragma once

#include "base/options.h"

ql::ToolTable qltok_table();
ql::ToolTable qlbin_table();
ql::ToolTable qltrain_table();
ql::ToolTable qleval_table();
ql::ToolTable qlctx_table();
