// The command line of qltok.
#pragma once

#include "base/options.h"

const ql::ToolTable& qltok_table();
