// Runs qlbin import and qlbin export.
#pragma once

#include "base/options.h"

void import_files(const ql::Options& options);
void export_folders(const ql::Options& options);
